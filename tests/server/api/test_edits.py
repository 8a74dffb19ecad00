"""Edits over HTTP: they need the current revision, and the original is kept."""

from base64 import b64decode, b64encode
from typing import Any

import pytest

from deadletter.core.letter import State
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.api.conftest import Api


async def kept(context: ServerContext, **different: Any) -> str:
    letter = make_letter(**{"body": b'{"amount": "4z"}', **different})
    await context.store.keep([letter])
    return f"/api/v1/letters/{letter.id}"


@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({"body": b64encode(b"\x00\xff").decode()}, b"\x00\xff"),
        ({"text": "grüße"}, "grüße".encode()),
        ({"json": {"amount": 42}}, b'{"amount":42}'),
        ({"json": None}, b"null"),
    ],
)
async def test_a_body_is_given_as_bytes_as_text_or_as_json(
    api: Api, context: ServerContext, change: dict[str, Any], body: bytes
) -> None:
    path = await kept(context)

    answer = await api.patch(path, json=change, headers={"if-match": '"0"'})

    assert answer.status_code == 200
    assert answer.headers["etag"] == '"1"'
    now = (await api.get(f"{path}/message")).json()
    assert b64decode(now["body"]) == body


async def test_edits_keep_the_original_and_show_the_difference(
    api: Api, context: ServerContext
) -> None:
    path = await kept(context)
    change = {"json": {"amount": 42}, "key": "k", "reason": "amount was text"}

    await api.patch(path, json=change, headers={"if-match": '"0"'})

    original = (await api.get(f"{path}/original")).json()
    assert b64decode(original["body"]) == b'{"amount": "4z"}'
    parts = {one["part"]: one["lines"] for one in (await api.get(f"{path}/diff")).json()}
    assert parts.keys() == {"body", "key"}
    assert {"sign": "+", "text": '  "amount": 42'} in parts["body"]
    *_, entry = await context.store.audit(target=path.rpartition("/")[2])
    assert "reveal" in entry.action  # of reading the original; the edit is before it


async def test_an_unedited_letter_is_its_own_original(api: Api, context: ServerContext) -> None:
    path = await kept(context)

    assert b64decode((await api.get(f"{path}/original")).json()["body"]) == (b'{"amount": "4z"}')
    assert (await api.get(f"{path}/diff")).json() == []


async def test_one_must_say_what_one_has_seen(api: Api, context: ServerContext) -> None:
    path = await kept(context)

    answer = await api.patch(path, json={"text": "x"})

    assert answer.status_code == 428
    assert "If-Match" in answer.json()["detail"]


async def test_edits_of_an_outdated_revision_are_rejected(api: Api, context: ServerContext) -> None:
    path = await kept(context)

    for tag in ['"7"', "0", 'W/"0"', "nonsense"]:
        answer = await api.patch(path, json={"text": "x"}, headers={"if-match": tag})

        assert answer.status_code == 412
        assert answer.headers["etag"] == '"0"'


async def test_of_two_who_edit_at_once_one_is_told(api: Api, context: ServerContext) -> None:
    path = await kept(context)
    seen = {"if-match": '"0"'}

    answers = [await api.patch(path, json={"text": text}, headers=seen) for text in ("a", "b")]

    assert [answer.status_code for answer in answers] == [200, 412]


async def test_a_letter_that_is_not_open_is_not_edited(api: Api, context: ServerContext) -> None:
    path = await kept(context, state=State.CLOSED)

    answer = await api.patch(path, json={"text": "x"}, headers={"if-match": "*"})

    assert answer.status_code == 409


async def test_an_edit_nobody_can_mean_is_refused(api: Api, context: ServerContext) -> None:
    path = await kept(context)

    for change in [
        {"text": "x", "json": 1},
        {"body": "not base64!"},
        {"id": "another"},
        {"headers": {"a": "b"}},
        {},
    ]:
        answer = await api.patch(path, json=change, headers={"if-match": '"0"'})

        assert answer.status_code == 400
