"""Replays over HTTP: plan, start, send, report."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from deadletter.core.access import Role
from deadletter.core.campaign import Outcome
from deadletter.core.letter import DeadLetter, State
from deadletter.core.origin import marked
from deadletter.intake.dialects import Origin
from deadletter.ports import LedgerKey, LedgerState, QueueOptions, ReplaySettled
from deadletter.server.context import ServerContext
from deadletter.settings import Serve, Settings, SourceServer
from deadletter.testing.fakes import eventually
from office.making import NOW, make_letter, make_letters
from server.api.conftest import Api, Caller


@pytest.fixture
def settings() -> Settings:
    shop = SourceServer(url="redis://127.0.0.1:1/0")
    return Settings(serve=Serve(replay_to=("canary",)), sources={"shop": shop})


async def is_sent(api: Api, name: str, count: int) -> None:
    async def look() -> bool:
        replay: dict[str, Any] = (await api.get(f"/api/v1/replays/{name}")).json()
        return bool(replay["counts"].get("sent", 0) == count)

    await eventually(look)


async def test_a_plan_freezes_the_letters_and_sends_nothing(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(2))

    answer = await api.post("/api/v1/replays/plan", json={"query": "is:pending"})

    assert answer.status_code == 201
    planned = answer.json()
    assert planned["sendable"] == 2
    assert planned["plan"]["targets"] == {"orders": 2}
    assert planned["replay"]["state"] == "planned"
    assert planned["replay"]["counts"] == {"planned": 2}
    await context.store.keep([make_letter(3)])  # too late to be part of it
    name = planned["replay"]["id"]
    started = await api.post(f"/api/v1/replays/{name}/start", json={"expect": 2})
    assert started.json()["state"] == "running"
    await is_sent(api, name, 2)
    assert (await context.office.letters.counts())["orders"] == {
        State.REPLAYING: 2,
        State.PENDING: 1,
    }


async def test_a_replay_goes_where_the_letters_came_from_and_is_reported(
    api: Api, context: ServerContext
) -> None:
    letters = make_letters(3)
    await context.store.keep(letters)
    wish = {"query": "*", "expect": 3, "rate": 1000.0, "reason": "fixed"}

    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]

    await is_sent(api, name, 3)
    got = await context.engine.broker.source("orders").receive(limit=9, wait=1, lease=9)
    assert {delivery.message.id for delivery in got} == {"m-1", "m-2", "m-3"}
    news = ReplaySettled(letters[0].id, 1, Outcome.CONFIRMED)
    await context.store.settle_replays([news])
    path = f"/api/v1/replays/{name}/report"
    first = (await api.get(path, params={"limit": 2})).json()
    more = {"limit": 2, "after": first["after"]}
    last = (await api.get(path, params=more)).json()
    told = {item["letter_id"]: item["outcome"] for item in first["items"] + last["items"]}
    assert told == {letters[0].id: "confirmed", letters[1].id: "sent", letters[2].id: "sent"}
    assert last["after"] is None


async def test_each_letter_of_a_plan_has_a_verdict_page_by_page(
    api: Api, context: ServerContext
) -> None:
    await context.engine.broker.create(QueueOptions(name="orders"))
    letters = make_letters(3)
    await context.store.keep(letters)
    planned = await api.post("/api/v1/replays/plan", json={"query": "*"})
    await api.post("/api/v1/letters/close", json={"ids": [letters[2].id]})
    path = f"/api/v1/replays/{planned.json()['replay']['id']}/verdicts"

    first = (await api.get(path, params={"limit": 2})).json()
    more = {"limit": 2, "after": first["after"]}
    last = (await api.get(path, params=more)).json()

    assert [len(page["letters"]) for page in (first, last)] == [2, 1]
    assert last["after"] is None
    verdicts = {one["letter_id"]: one["verdict"] for one in first["letters"] + last["letters"]}
    assert verdicts == {
        letters[0].id: "ready",
        letters[1].id: "ready",
        letters[2].id: "wrong-state",
    }


async def test_letters_that_a_plan_leaves_out_are_judged_as_well(
    api: Api, context: ServerContext
) -> None:
    await context.engine.broker.create(QueueOptions(name="orders"))
    letters = make_letters(4)
    await context.store.keep(letters)
    await api.post("/api/v1/letters/close", json={"ids": [letters[1].id]})
    path = "/api/v1/replays/verdicts"

    first = (await api.post(path, json={"query": "*"}, params={"limit": 3})).json()
    more = {"limit": 3, "after": first["after"]}
    last = (await api.post(path, json={"query": "*"}, params=more)).json()
    two = (await api.post(path, json={"query": "*", "limit": 2})).json()
    stored = (await api.get("/api/v1/replays")).json()

    verdicts = [one["verdict"] for one in (*first["letters"], *last["letters"])]
    assert sorted(verdicts) == ["ready", "ready", "ready", "wrong-state"]
    assert last["after"] is None
    assert [one["verdict"] for one in two["letters"]].count("ready") == 2
    assert stored["replays"] == []


async def judged(api: Api, name: str) -> dict[str, Any]:
    """Wait until the server has judged the letters of a frozen replay; return it."""
    found: dict[str, Any] = {}

    async def look() -> bool:
        found.update((await api.get(f"/api/v1/replays/{name}")).json())
        return bool(found["plan"]["is_judged"])

    await eventually(look)
    return found


async def test_a_frozen_replay_is_judged_in_the_background_and_started_as_agreed(
    api: Api, context: ServerContext
) -> None:
    await context.engine.broker.create(QueueOptions(name="orders"))
    secret = make_letter(9, headers={"authorization": "x"})
    await context.store.keep([*make_letters(3), secret])

    answer = await api.post("/api/v1/replays/freeze", json={"query": "*", "expect": 4})
    name = answer.json()["id"]
    plan = (await judged(api, name))["plan"]
    path = f"/api/v1/replays/{name}"
    risky = (await api.get(f"{path}/verdicts", params={"verdict": "credentials"})).json()
    wish = {"leave_out": ["credentials"], "expect": 4}
    wrong = await api.post(f"{path}/agree", json=wish)
    agreed = await api.post(f"{path}/agree", json=wish | {"expect": 3})
    early = await api.post(f"{path}/start", json={"expect": 4})
    started = await api.post(f"{path}/start", json={"expect": 3})
    await is_sent(api, name, 3)

    assert (answer.status_code, answer.json()["state"]) == (201, "planned")
    assert plan["verdicts"] == {"ready": 3, "credentials": 1}
    assert [one["letter_id"] for one in risky["letters"]] == [secret.id]
    assert (wrong.status_code, early.status_code) == (409, 409)
    assert (agreed.json()["care"]["skip"], started.json()["state"]) == (["credentials"], "running")
    assert (await context.store.counts())["orders"][State.PENDING] == 1


async def test_the_report_of_a_replay_can_be_narrowed_to_outcomes(
    api: Api, context: ServerContext
) -> None:
    letters = make_letters(3)
    await context.store.keep(letters)
    name = (await api.post("/api/v1/replays", json={"query": "*", "expect": 3})).json()["replay"]
    await is_sent(api, name["id"], 3)
    await context.store.settle_replays([ReplaySettled(letters[0].id, 1, Outcome.CONFIRMED)])
    path = f"/api/v1/replays/{name['id']}/report"

    handled = (await api.get(path, params={"outcome": ["confirmed", "presumed"]})).json()
    failed = (await api.get(path, params={"outcome": "failed"})).json()
    unknown = await api.get(path, params={"outcome": "lost"})

    assert [one["letter_id"] for one in handled["items"]] == [letters[0].id]
    assert failed["items"] == []
    assert unknown.status_code == 400


async def test_a_replay_can_be_paused_resumed_and_cancelled(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(30))
    wish = {"query": "*", "expect": 30, "rate": 2.0}
    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]
    path = f"/api/v1/replays/{name}"

    paused = (await api.post(f"{path}/pause", json={"reason": "wait"})).json()
    again = (await api.post(f"{path}/resume", json={})).json()
    twice = await api.post(f"{path}/resume", json={})
    ended = (await api.post(f"{path}/cancel", json={})).json()
    late = await api.post(f"{path}/resume", json={})

    assert paused["state"] == "paused"
    assert again["state"] == "running"
    assert twice.status_code == 409
    assert ended["state"] == "cancelled"
    assert late.status_code == 409


async def test_a_replay_stops_by_itself_when_its_canary_fails(
    api: Api, context: ServerContext
) -> None:
    letters = make_letters(9)
    await context.store.keep(letters)
    wish = {"query": "*", "expect": 9, "care": {"canary": 2}}
    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]
    await is_sent(api, name, 2)
    got = await context.engine.broker.source("orders").receive(limit=9, wait=1, lease=9)
    lineages = [one.message.lineage for one in got if one.message.lineage]
    assert len(lineages) == 2

    await context.store.settle_replays(
        [ReplaySettled(one.letter_id, 1, Outcome.FAILED) for one in lineages]
    )

    async def is_paused() -> bool:
        found = (await api.get(f"/api/v1/replays/{name}")).json()
        return bool(found["state"] == "paused")

    await eventually(is_paused)
    told = (await api.get("/api/v1/audit", params={"target": name})).json()
    assert "2 of 2 failed again, where 10% may" in told["entries"][-1]["reason"]


@pytest.mark.parametrize("care", [{"canary": 0}, {"halt_on": 2}, {"halt_on": -0.1}, {"speed": 1}])
async def test_care_that_makes_no_sense_is_refused(
    api: Api, context: ServerContext, care: dict[str, Any]
) -> None:
    await context.store.keep(make_letters(2))

    answer = await api.post("/api/v1/replays/plan", json={"query": "*", "care": care})

    assert answer.status_code == 400
    assert next(iter(care)) in answer.text


async def test_letters_go_only_where_the_server_was_told_they_may(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(1))

    for to in ("http://169.254.169.254/latest", "elsewhere", "orders"):
        answer = await api.post("/api/v1/replays/plan", json={"query": "*", "to": to})
        assert answer.status_code == 400
        assert "serve.replay_to" in answer.json()["detail"]
    wish = {"query": "*", "expect": 1, "to": "canary"}
    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]
    await is_sent(api, name, 1)
    assert await context.engine.broker.source("canary").receive(limit=1, wait=1, lease=9)


async def test_replays_by_search_require_the_number_of_letters(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep(make_letters(2))

    without = await api.post("/api/v1/replays", json={"query": "*"})
    other = await api.post("/api/v1/replays", json={"query": "*", "expect": 3})

    assert (without.status_code, other.status_code) == (400, 409)
    assert (await api.get("/api/v1/replays")).json() == {"replays": [], "after": None}


async def test_letters_that_cannot_be_sent_are_not(api: Api, context: ServerContext) -> None:
    letter = make_letter(state=State.CLOSED)
    await context.store.keep([letter])

    answer = await api.post("/api/v1/replays", json={"ids": [letter.id]})

    assert answer.status_code == 409
    (replay,) = (await api.get("/api/v1/replays")).json()["replays"]
    assert replay["state"] == "cancelled"


async def test_a_replay_that_is_not_there(api: Api) -> None:
    for verb in ("start", "pause", "resume", "cancel"):
        answer = await api.post(f"/api/v1/replays/nothing/{verb}", json={})
        assert answer.status_code == 404
    assert (await api.get("/api/v1/replays/nothing/report")).status_code == 404


async def test_limited_users_replay_and_see_only_their_mailboxes(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await guarded.store.keep([make_letter(1, source="mails"), make_letter(2)])
    anna = await caller(Role.OPERATOR, "orders", name="anna")
    chief = await caller(Role.ADMIN, name="chief")
    everything = {"query": "*"}

    own = await guarded_api.post("/api/v1/replays/plan", json=everything, headers=anna)
    all_of_it = await guarded_api.post("/api/v1/replays/plan", json=everything, headers=chief)

    assert own.json()["plan"]["sources"] == {"orders": 1}
    other = all_of_it.json()["replay"]["id"]
    listed = (await guarded_api.get("/api/v1/replays", headers=anna)).json()
    assert [replay["actor"] for replay in listed["replays"]] == ["anna"]
    hidden = await guarded_api.get(f"/api/v1/replays/{other}", headers=anna)
    assert hidden.status_code == 404


async def test_replays_go_on_where_the_page_before_ended(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await guarded.store.keep([make_letter(1)])
    anna = await caller(Role.OPERATOR, "orders", name="anna")
    chief = await caller(Role.ADMIN, name="chief")
    wish = {"query": "*"}
    made = [
        (await guarded_api.post("/api/v1/replays/plan", json=wish, headers=who)).json()
        for who in (anna, chief, anna, chief, anna)
    ]
    names = [one["replay"]["id"] for one in reversed(made)]

    async def walk(who: dict[str, str]) -> list[list[str]]:
        pages, asked = [], {"limit": "2"}
        while asked.get("after", "") is not None and len(pages) < 9:
            page = await guarded_api.get("/api/v1/replays", params=asked, headers=who)
            pages.append([replay["id"] for replay in page.json()["replays"]])
            asked["after"] = page.json()["after"]
        return pages

    assert await walk(chief) == [names[:2], names[2:4], names[4:]]
    assert await walk(anna) == [names[0:3:2], names[4:]]
    # Of another's replay no more is said than of one that is not there.
    answers = [
        await guarded_api.get("/api/v1/replays", params={"after": name}, headers=anna)
        for name in (names[1], "0" * len(names[1]))
    ]
    assert [answer.status_code for answer in answers] == [400, 400]
    told = [answer.json()["detail"] for answer in answers]
    assert told[0].replace(names[1], "0" * len(names[1])) == told[1]


async def test_processed_letters_are_sent_only_if_included(
    api: Api, context: ServerContext
) -> None:
    letter = make_letter(1, idempotency_key="done")
    await context.store.keep([letter])
    ledger = context.engine.ledger
    assert ledger is not None
    (claim,) = await ledger.begin([LedgerKey("orders", "done")], lease=60)
    await ledger.finish([(claim, LedgerState.PROCESSED)], ttl=600)

    refused = await api.post("/api/v1/replays", json={"ids": [letter.id]})
    care = {"include": ["already-processed"]}
    named = await api.post("/api/v1/replays", json={"ids": [letter.id], "care": care})

    assert refused.status_code == 409
    assert named.status_code == 201
    assert named.json()["replay"]["care"]["include"] == ["already-processed"]
    await is_sent(api, named.json()["replay"]["id"], 1)


async def test_expired_letters_are_started_only_if_somebody_agrees(
    api: Api, context: ServerContext
) -> None:
    letter = make_letter(1, expires_at=NOW - timedelta(days=9_999))
    await context.store.keep([letter])

    at_once = await api.post("/api/v1/replays", json={"ids": [letter.id]})
    planned = await api.post("/api/v1/replays/plan", json={"ids": [letter.id]})

    assert at_once.status_code == 409
    assert "1 expired" in at_once.json()["detail"]
    assert planned.json()["plan"]["asked"] == ["expired"]
    name = planned.json()["replay"]["id"]
    assert (await api.post(f"/api/v1/replays/{name}/start", json={})).status_code == 200


@pytest.mark.parametrize("path", ["replays/plan", "replays", "letters/close", "letters/discard"])
async def test_free_text_must_be_said_to_be_some(
    api: Api, context: ServerContext, path: str
) -> None:
    await context.store.keep(make_letters(1))
    wish = {"query": "bank", "expect": 1}

    refused = await api.post(f"/api/v1/{path}", json=wish)
    said = await api.post(f"/api/v1/{path}", json={**wish, "free_text": True})

    assert refused.status_code in {400, 422}
    assert "free_text: true" in refused.json()["detail"]
    assert said.status_code in {200, 201}


def drained(number: int, server: str) -> DeadLetter:
    letter = make_letter(number)
    origin = Origin("rq", "rq:orders", server=server)
    return structs.replace(letter, message=marked(letter.message, origin))


async def test_drained_letters_go_through_servers_that_settings_name(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep([drained(1, "shop"), drained(2, "redis://else.where:6379")])
    path = "/api/v1/replays/plan"
    by_id = {"ids": [drained(2, "").id]}

    itself = await api.post(path, json={"ids": [drained(1, "").id]})
    elsewhere = await api.post(path, json=by_id)
    named = await api.post(path, json=by_id | {"through": "shop"})
    unknown = await api.post(path, json=by_id | {"through": "store"})
    url = await api.post(path, json=by_id | {"through": "redis://127.0.0.1:1"})

    assert itself.json()["replay"]["through"] == "shop"
    assert itself.json()["replay"]["care"]["presume_after"] == 600.0
    assert elsewhere.status_code == 409
    assert "[sources.NAME]" in elsewhere.json()["detail"]
    assert named.json()["replay"]["through"] == "shop"
    assert (unknown.status_code, url.status_code) == (400, 400)


async def test_consumers_confirm_messages_by_their_ids(api: Api, context: ServerContext) -> None:
    letters = make_letters(2)
    await context.store.keep(letters)
    wish = {"query": "*", "expect": 2}
    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]
    await is_sent(api, name, 2)

    said = {"message_ids": ["m-1", "m-7"], "reason": "seen in the log"}
    answer = await api.post("/api/v1/confirmations", json=said)
    nothing = await api.post("/api/v1/confirmations", json={"message_ids": []})

    assert answer.status_code == 200
    assert answer.json() == {"confirmed": 1, "unknown": ["m-7"]}
    assert nothing.status_code == 400
    counts = (await api.get(f"/api/v1/replays/{name}")).json()["counts"]
    assert counts == {"confirmed": 1, "sent": 1}
