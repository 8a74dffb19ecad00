"""Letters over HTTP: search, read, timeline, download."""

import re
from base64 import b64decode
from pathlib import Path

import pytest
from litestar.testing import AsyncTestClient

from deadletter.core.access import Role
from deadletter.core.letter import By
from deadletter.ports import BodyIndexing
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.wiring.engines import opened
from office.making import make_letter, make_letters
from server.api.conftest import Api, Caller
from server.conftest import context_of, token


async def test_a_search_is_paged_by_where_the_last_page_ended(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(5))

    first = (await api.get("/api/v1/letters", params={"limit": 3})).json()
    again = {"limit": 3, "after": first["after"]}
    rest = (await api.get("/api/v1/letters", params=again)).json()

    names = [head["message_id"] for head in first["heads"] + rest["heads"]]
    assert names == ["m-1", "m-2", "m-3", "m-4", "m-5"]
    assert rest["after"] is None


async def test_the_search_language_is_the_one_of_the_command(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep([make_letter(1), make_letter(2, source="mails")])

    found = await api.get("/api/v1/letters", params={"query": "source:mails"})

    assert [head["source"] for head in found.json()["heads"]] == ["mails"]


async def test_a_search_that_cannot_be_read_is_pointed_at(api: Api) -> None:
    answer = await api.get("/api/v1/letters", params={"query": "is:nonsense"})

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:deadletter:problem:query"
    assert (problem["query"], problem["at"]) == ("is:nonsense", 3)


async def test_invalid_page_parameters_are_rejected_with_a_reason(api: Api) -> None:
    for params in [{"limit": 0}, {"limit": 501}, {"limit": "x"}, {"after": "x"}]:
        answer = await api.get("/api/v1/letters", params=params)  # type: ignore[arg-type]

        assert answer.status_code == 400
        assert answer.json()["detail"]


async def test_a_letter_is_shown_with_its_secrets_masked(api: Api, context: ServerContext) -> None:
    letter = make_letter(
        body=b'{"order": 1, "password": "hunter2hunter2"}',
        headers={"authorization": "Bearer abcdefabcdef"},
    )
    await context.store.keep([letter])

    answer = await api.get(f"/api/v1/letters/{letter.id}")

    assert answer.status_code == 200
    assert answer.headers["etag"] == '"0"'
    assert "hunter2" not in answer.text
    assert "abcdefabcdef" not in answer.text
    shown = answer.json()
    assert shown["head"]["id"] == letter.id
    assert '"order": 1' in shown["message"]["preview"]
    assert len(shown["attempts"]) == 2


SECRETS = [
    "header.authorization:*",
    "body.user.token:s*",
    "!body.user.token:s*",
    "source:orders (body.user.token:s* OR is:pending)",
    "body.token.inner:1",
]


@pytest.mark.parametrize("query", SECRETS)
async def test_masked_values_cannot_be_guessed_by_searching(
    guarded_api: Api, guarded: ServerContext, caller: Caller, query: str
) -> None:
    await guarded.store.keep([make_letter(body=b'{"user": {"token": "secret-1"}}')])
    params = {"query": query}

    refused = await guarded_api.get(
        "/api/v1/letters", params=params, headers=await caller(Role.READER)
    )
    answered = await guarded_api.get(
        "/api/v1/letters", params=params, headers=await caller(Role.OPERATOR)
    )

    assert refused.status_code == 400
    assert "is masked for you" in refused.json()["detail"]
    assert refused.json()["at"] == re.search("header|body", query).start()  # type: ignore[union-attr]
    assert answered.status_code == 200


async def test_words_of_readers_are_looked_for_in_errors_only(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    letter = make_letter(body=b'{"user": {"token": "secret-1"}}')
    await guarded.store.keep([letter])

    async def found(role: Role, query: str) -> int:
        headers = await caller(role)
        answer = await guarded_api.get("/api/v1/letters", params={"query": query}, headers=headers)
        return len(answer.json()["heads"])

    said = letter.head.error_text.split()[0].upper()
    assert await found(Role.READER, f'"{said}"') == 1
    assert await found(Role.READER, "secret-*") == 0
    assert await found(Role.OPERATOR, "secret-*") == 1
    assert await found(Role.READER, "body.user.name:anna OR source:orders") == 1


async def test_an_index_of_bodies_tells_readers_nothing(tmp_path: Path) -> None:
    letters = [make_letter(1, body=b"token=secret-1"), *make_letters(4)[1:]]
    async with opened(f"sqlite:///{tmp_path}/office.db") as engine:
        context = context_of(engine, guarded=True)
        store = context.store
        assert isinstance(store, BodyIndexing)
        await store.keep(letters)
        await store.index_bodies(1_000)
        while await store.index_texts():
            pass
        async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as guarded_api:

            async def seen(role: Role, word: str) -> tuple[int, int]:
                headers = {"authorization": f"Bearer {await token(context, role)}"}
                asked = {"query": f"{word} OR {word}"}
                answer = await guarded_api.get("/api/v1/letters", params=asked, headers=headers)
                return len(answer.json()["heads"]), answer.json()["looked_at"]

            assert await seen(Role.READER, "secret-1") == (0, 0)
            assert await seen(Role.READER, "no-such") == (0, 0)
            assert await seen(Role.OPERATOR, "secret-1") == (1, 1)


async def test_the_beginning_of_an_id_is_enough(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])

    answer = await api.get(f"/api/v1/letters/{letter.id[:8]}")

    assert answer.json()["head"]["id"] == letter.id


async def test_the_whole_message_is_given_to_operators_and_that_is_audited(
    api: Api, context: ServerContext
) -> None:
    letter = make_letter(body=b"\x00\xff secret", headers={"a": b"\xfe"})
    await context.store.keep([letter])

    message = (await api.get(f"/api/v1/letters/{letter.id}/message")).json()

    assert b64decode(message["body"]) == b"\x00\xff secret"
    assert b64decode(message["headers"][0][1]) == b"\xfe"
    (entry,) = await context.store.audit(target=letter.id)
    assert (entry.action, entry.actor) == ("reveal", "local")


async def test_a_body_is_saved_and_never_shown(api: Api, context: ServerContext) -> None:
    hostile = b"<script>alert(1)</script>"
    letter = make_letter(body=hostile, content_type="text/html")
    await context.store.keep([letter])

    answer = await api.get(f"/api/v1/letters/{letter.id}/body")

    assert answer.content == hostile
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


async def test_a_timeline_tells_attempts_and_acts_in_order(
    api: Api, context: ServerContext
) -> None:
    letter = make_letter(now=context.clock.now())
    await context.store.keep([letter])
    await context.office.letters.review([letter.id], By("anna", "seen"))

    told = (await api.get(f"/api/v1/letters/{letter.id}/timeline")).json()

    kinds = [moment["kind"] for moment in told["moments"]]
    assert kinds == ["sent", "received", "attempt", "attempt", "died", "act"]
    assert told["moments"][-1]["act"]["reason"] == "seen"


async def test_odd_text_can_be_told(api: Api, context: ServerContext) -> None:
    letter = make_letter(message_id="m-\udfff", key="half a pair: \ud800")
    await context.store.keep([letter])

    answer = await api.get("/api/v1/letters")

    assert answer.status_code == 200
    assert answer.json()["heads"][0]["key"] == "half a pair: \\ud800"
    found = await api.get("/api/v1/letters", params={"query": r"message:m-\udfff"})
    assert [head["id"] for head in found.json()["heads"]] == [letter.id]


async def test_letters_of_others_are_as_if_they_did_not_exist(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    theirs, ours = make_letter(1, source="mails"), make_letter(2)
    await guarded.store.keep([theirs, ours])
    somebody = await caller(Role.ADMIN, "orders")
    nowhere = "a" * 24

    found = (await guarded_api.get("/api/v1/letters", headers=somebody)).json()
    assert [head["id"] for head in found["heads"]] == [ours.id]
    for path in ("", "/timeline", "/message", "/body", "/original", "/diff"):
        one = await guarded_api.get(f"/api/v1/letters/{theirs.id}{path}", headers=somebody)
        none = await guarded_api.get(f"/api/v1/letters/{nowhere}{path}", headers=somebody)
        assert one.status_code == none.status_code == 404
        assert one.text.replace(theirs.id, nowhere) == none.text
    sneaky = {"query": f"id:{theirs.id} OR source:mails"}
    found = (await guarded_api.get("/api/v1/letters", params=sneaky, headers=somebody)).json()
    assert found["heads"] == []


async def test_readers_do_not_see_what_is_masked(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    letter = make_letter()
    await guarded.store.keep([letter])
    reader = await caller(Role.READER)

    for path in ("message", "body", "original"):
        answer = await guarded_api.get(f"/api/v1/letters/{letter.id}/{path}", headers=reader)
        assert answer.status_code == 403
        assert answer.headers["content-type"] == "application/problem+json"
