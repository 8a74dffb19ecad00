"""Repeated requests with an idempotency key are done once."""

from typing import Any

import pytest

from deadletter.core.access import Answer, Role
from deadletter.server.context import ServerContext
from deadletter.server.idempotency import AnswersInMemory
from deadletter.testing.fakes import FakeClock
from office.making import make_letter, make_letters
from server.api.conftest import Api, Caller

KEY = {"idempotency-key": "k-1"}


async def test_the_answer_is_given_again_and_nothing_is_done_twice(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(2))
    wish = {"query": "*"}

    first = await api.post("/api/v1/replays/plan", json=wish, headers=KEY)
    again = await api.post("/api/v1/replays/plan", json=wish, headers=KEY)

    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(await context.office.replays.sender.latest()) == 1


async def test_the_key_of_another_request_is_refused(api: Api, context: ServerContext) -> None:
    await context.store.keep(make_letters(2))
    await api.post("/api/v1/letters/review", json={"query": "*"}, headers=KEY)

    for path, wish in (
        ("/api/v1/letters/review", {"query": "source:orders"}),
        ("/api/v1/letters/close", {"query": "*"}),
    ):
        answer = await api.post(path, json=wish, headers=KEY)
        assert answer.status_code == 422
        assert "another request" in answer.json()["detail"]


async def test_failed_requests_can_be_sent_again(api: Api, context: ServerContext) -> None:
    wish = {"query": "*"}
    refused = await api.post("/api/v1/letters/review", json=wish, headers=KEY)
    await context.store.keep(make_letters(1))

    done = await api.post("/api/v1/letters/review", json=wish, headers=KEY)

    assert (refused.status_code, done.status_code) == (404, 200)


async def test_keys_of_two_callers_have_nothing_to_do_with_each_other(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    letter = make_letter()
    await guarded.store.keep([letter])
    anna = await caller(Role.OPERATOR, name="anna")
    otto = await caller(Role.OPERATOR, name="otto")
    path, wish = f"/api/v1/letters/{letter.id}/notes", {"text": "seen"}

    for somebody in (anna, otto):
        answer = await guarded_api.post(path, json=wish, headers=somebody | KEY)
        assert "idempotency-replayed" not in answer.headers

    reader = await caller(Role.READER)
    assert (await guarded_api.post(path, json=wish, headers=reader | KEY)).status_code == 403
    assert len(await guarded.store.audit(target=letter.id)) == 2


async def test_a_request_that_is_being_worked_on_is_not_started_again(
    api: Api, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await context.store.keep(make_letters(1))
    answers: Any = api.app.state.answers
    begin = answers.begin_answer

    async def begun_before(answer: Answer) -> Answer | None:
        await begin(answer)  # by a request that has not ended yet
        found: Answer | None = await begin(answer)
        return found

    monkeypatch.setattr(answers, "begin_answer", begun_before)

    answer = await api.post("/api/v1/letters/review", json={"query": "*"}, headers=KEY)

    assert answer.status_code == 409
    assert answer.headers["retry-after"] == "1"


async def test_a_key_nobody_can_mean_is_refused(api: Api) -> None:
    for key in ("", "a" * 201, "a\tb"):
        answer = await api.post(
            "/api/v1/letters/review", json={"query": "*"}, headers={"idempotency-key": key}
        )

        assert answer.status_code == 400


async def test_in_memory_the_oldest_answers_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.server.idempotency._MOST", 2)
    clock = FakeClock()
    answers = AnswersInMemory(clock)
    claims = [
        Answer(key=key, request="r", expires_at=clock.now().replace(year=2999)) for key in "abc"
    ]

    assert [await answers.begin_answer(claim) for claim in claims] == [None] * 3
    assert await answers.begin_answer(claims[2]) == claims[2]
    assert await answers.begin_answer(claims[0]) is None


async def test_an_edit_whose_answer_was_lost_can_be_sent_again(
    api: Api, context: ServerContext
) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    path = f"/api/v1/letters/{letter.id}"
    headers = {**KEY, "if-match": '"0"'}

    first = await api.patch(path, json={"text": "mended"}, headers=headers)
    again = await api.patch(path, json={"text": "mended"}, headers=headers)
    other = await api.patch(path, json={"text": "else"}, headers=headers)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.content == again.content
    assert other.status_code == 422
    assert (await api.get(path)).json()["head"]["revision"] == 1


async def test_a_token_is_made_once_and_shown_once(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    assert guarded.access is not None
    admin = await caller(Role.ADMIN)

    async def asked(key: str, name: str) -> Any:
        headers = admin | {"idempotency-key": key}
        return await guarded_api.post("/api/v1/tokens", json={"name": name}, headers=headers)

    first, again = await asked("k-1", "ci"), await asked("k-1", "ci")
    other, new = await asked("k-1", "cd"), await asked("k-2", "ci")

    statuses = [one.status_code for one in (first, again, other, new)]
    assert statuses == [201, 409, 422, 201]
    made = first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["content-type"] == "application/problem+json"
    assert again.json()["type"].endswith(":conflict")
    assert f"token {made} was created with this idempotency key" in again.json()["detail"]
    known = {one.id for one in await guarded.access.tokens() if one.to.name == "ci"}
    assert known == {made, new.json()["id"]}


async def test_a_token_that_was_refused_may_be_asked_for_again(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    admin = await caller(Role.ADMIN) | KEY
    wish = {"name": "ci", "expires_at": "2001-01-01T00:00:00Z"}

    refused = await guarded_api.post("/api/v1/tokens", json=wish, headers=admin)
    once_more = await guarded_api.post("/api/v1/tokens", json=wish, headers=admin)

    assert (refused.status_code, once_more.status_code) == (400, 400)
    assert "idempotency-replayed" not in once_more.headers
