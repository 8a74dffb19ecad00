"""Malformed requests, and requests that race with a change."""

from typing import Any

import pytest

from deadletter.core.letter import By, State
from deadletter.ports import Move
from deadletter.server.context import ServerContext
from office.making import BY, make_letter
from server.api.conftest import Api

JSON = {"content-type": "application/json"}
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/letters/review", DEEP),
        ("POST", "/api/v1/replays/plan", f'{{"query": {DEEP}'),
        ("PATCH", "/api/v1/letters/{id}", f'{{"json": {DEEP}'),
        ("POST", "/api/v1/session", DEEP[:3_000]),
    ],
)
async def test_endlessly_nested_bodies_are_client_errors(
    api: Api, context: ServerContext, method: str, path: str, body: str
) -> None:
    letter = make_letter()
    await context.store.keep([letter])

    answer = await api.request(method, path.format(id=letter.id), content=body, headers=JSON)

    assert answer.status_code == 400
    assert "deep" in answer.json()["detail"]


async def test_large_bodies_of_unauthenticated_callers_are_rejected(guarded_api: Api) -> None:
    """The body of a sign-in is limited, because the caller is unknown."""
    body = '{"token": "' + "x" * 200_000 + '"}'

    answer = await guarded_api.post("/api/v1/session", content=body, headers=JSON)

    assert answer.status_code == 413
    assert "the request is too large" in answer.json()["detail"]


async def test_a_letter_named_twice_is_one_letter(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    ids = [letter.id, letter.id.upper()]

    answer = await api.post("/api/v1/letters/review", json={"ids": ids})

    assert answer.json() == {"asked": 1, "moved": 1, "skipped": {}}


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ('"0"', 200),
        ('"7", "0"', 200),
        ('"7","8"', 412),
        ('W/"0"', 412),  # weak ones never match here
        ("0", 412),
        ("*", 200),
        ("", 412),
    ],
)
async def test_any_of_several_revisions_will_do(
    api: Api, context: ServerContext, tags: str, status: int
) -> None:
    letter = make_letter()
    await context.store.keep([letter])

    answer = await api.patch(
        f"/api/v1/letters/{letter.id}", json={"text": "x"}, headers={"if-match": tags}
    )

    assert answer.status_code == status


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_letter_purged_meanwhile_is_gone_not_broken(
    api: Api, context: ServerContext, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    edit = type(context.store).edit

    async def purged() -> None:
        thrown = Move(ids=(letter.id,), old=frozenset({State.PENDING}), new=State.DISCARDED)
        await context.store.move(thrown, BY)
        await context.store.purge([letter.id], By("anna", "now"))

    async def beside(self: Any, *args: Any, **options: Any) -> None:
        if when == "before":
            await purged()
        await edit(self, *args, **options)
        if when == "after":
            await purged()

    monkeypatch.setattr(type(context.store), "edit", beside)
    answer = await api.patch(
        f"/api/v1/letters/{letter.id}", json={"text": "x"}, headers={"if-match": "*"}
    )

    assert answer.status_code == 404
