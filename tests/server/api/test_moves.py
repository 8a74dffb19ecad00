"""Changes of letters over HTTP, of one letter and of many."""

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import State
from deadletter.server.context import ServerContext
from office.making import make_letter, make_letters
from server.api.conftest import Api, Caller


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("review", State.PENDING, State.REVIEWED),
        ("close", State.PENDING, State.CLOSED),
        ("reopen", State.CLOSED, State.PENDING),
        ("discard", State.PENDING, State.DISCARDED),
        ("restore", State.DISCARDED, State.PENDING),
    ],
)
async def test_a_letter_moves(
    api: Api, context: ServerContext, verb: str, before: State, after: State
) -> None:
    letter = make_letter(state=before)
    await context.store.keep([letter])

    answer = await api.post(f"/api/v1/letters/{letter.id}/{verb}", json={"reason": "r"})

    assert answer.status_code == 200
    assert answer.json() == {"asked": 1, "moved": 1, "skipped": {}}
    assert (await context.office.letters.get(letter.id)).head.state is after
    *_, entry = await context.store.audit(target=letter.id)
    assert (entry.actor, entry.reason) == ("local", "r")


@pytest.mark.parametrize("verb", ["close", "reopen", "discard"])
async def test_a_letter_that_waits_moves_only_if_asked_for(
    api: Api, context: ServerContext, verb: str
) -> None:
    letter, other = (make_letter(1, state=State.REPLAYING), make_letter(2, state=State.REPLAYING))
    await context.store.keep([letter, other])
    path, many = f"/api/v1/letters/{letter.id}/{verb}", f"/api/v1/letters/{verb}"

    refused = await api.post(path, json={})
    one = await api.post(path, json={"unconfirmed": True})
    both = await api.post(many, json={"ids": [other.id], "unconfirmed": True})

    assert refused.status_code == 409
    assert "is replaying" in refused.json()["detail"]
    assert (one.json()["moved"], both.json()["moved"]) == (1, 1)


async def test_a_letter_that_cannot_move_says_why(api: Api, context: ServerContext) -> None:
    letter = make_letter(state=State.CLOSED)
    await context.store.keep([letter])

    answer = await api.post(f"/api/v1/letters/{letter.id}/review", json={})

    assert answer.status_code == 409
    assert "is closed" in answer.json()["detail"]


async def test_many_move_by_a_search_and_those_that_do_not_are_counted(
    api: Api, context: ServerContext
) -> None:
    letters = make_letters(3)
    await context.store.keep(letters)
    await context.store.keep([make_letter(9, source="mails")])
    await api.post(f"/api/v1/letters/{letters[0].id}/close", json={})

    answer = await api.post("/api/v1/letters/review", json={"query": "source:orders"})

    assert answer.json() == {"asked": 3, "moved": 2, "skipped": {"is closed": 1}}
    assert (await context.office.letters.counts())["mails"] == {State.PENDING: 1}


async def test_many_are_named_one_by_one(api: Api, context: ServerContext) -> None:
    letters = make_letters(2)
    await context.store.keep(letters)
    ids = [letter.id for letter in letters] + ["a" * 24]

    answer = await api.post("/api/v1/letters/close", json={"ids": ids})

    assert answer.json()["moved"] == 2
    assert answer.json()["skipped"] == {"no longer there": 1}


async def test_another_number_than_expected_changes_nothing(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(3))

    answer = await api.post("/api/v1/letters/discard", json={"query": "*", "expect": 2})

    assert answer.status_code == 409
    assert "3 letters match now, not 2" in answer.json()["detail"]
    assert (await context.office.letters.counts())["orders"] == {State.PENDING: 3}


@pytest.mark.parametrize("verb", ["discard", "purge"])
async def test_irreversible_moves_require_the_number_of_letters(
    api: Api, context: ServerContext, verb: str
) -> None:
    await context.store.keep(make_letters(1))
    wish = {"query": "*", "reason": "tidy"}

    refused = await api.post(f"/api/v1/letters/{verb}", json=wish)
    done = await api.post(f"/api/v1/letters/{verb}", json=wish | {"expect": 1})

    assert (refused.status_code, done.status_code) == (400, 200)


async def test_a_choice_nobody_can_mean_is_refused(api: Api) -> None:
    for wish in [
        {},
        {"query": "*", "ids": ["a" * 24]},
        {"query": ""},
        {"ids": []},
        {"query": "*", "limit": 0},
        {"query": "*", "hurry": True},
        {"query": "("},
        [],
    ]:
        answer = await api.post("/api/v1/letters/review", json=wish)

        assert answer.status_code == 400
        assert answer.json()["detail"]


async def test_purging_takes_a_reason(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    path = f"/api/v1/letters/{letter.id}/purge"

    refused = await api.post(path, json={})
    assert refused.status_code == 400
    assert "reason" in refused.json()["detail"]
    assert (await api.post(path, json={"reason": "asked to"})).status_code == 200
    assert (await api.get(f"/api/v1/letters/{letter.id}")).status_code == 404


async def test_a_note_is_written_for_whoever_looks_next(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])

    await api.post(f"/api/v1/letters/{letter.id}/notes", json={"text": "asked the bank"})

    (entry,) = await context.store.audit(target=letter.id)
    assert (entry.action, entry.detail) == ("note", "asked the bank")


async def test_letters_of_others_are_not_touched_and_not_told_of(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    theirs, ours = make_letter(1, source="mails"), make_letter(2)
    await guarded.store.keep([theirs, ours])
    somebody = await caller(Role.OPERATOR, "orders")

    by_search = await guarded_api.post(
        "/api/v1/letters/review", json={"query": "*"}, headers=somebody
    )
    by_name = await guarded_api.post(
        "/api/v1/letters/close", json={"ids": [theirs.id, ours.id]}, headers=somebody
    )
    alone = await guarded_api.post(f"/api/v1/letters/{theirs.id}/close", json={}, headers=somebody)

    assert by_search.json()["asked"] == 1
    assert by_name.json() == {"asked": 2, "moved": 1, "skipped": {"no longer there": 1}}
    assert alone.status_code == 404
    assert (await guarded.office.letters.get(theirs.id)).head.state is State.PENDING


async def test_the_audit_names_who_it_was(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    letter = make_letter()
    await guarded.store.keep([letter])

    await guarded_api.post(
        f"/api/v1/letters/{letter.id}/review",
        json={"reason": "seen"},
        headers=await caller(Role.OPERATOR, name="anna"),
    )

    (entry,) = await guarded.store.audit(target=letter.id)
    assert (entry.actor, entry.reason) == ("anna", "seen")
