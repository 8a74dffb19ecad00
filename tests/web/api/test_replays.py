"""Replays over HTTP: planned, started, sent by the server, reported."""

from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.core.campaign import Outcome
from deadletter.core.letter import State
from deadletter.ports import ReplaySettled
from deadletter.settings import Serve, Settings
from deadletter.testing.waiting import eventually
from deadletter.web.place import Place
from office.making import make_letter, make_letters
from web.api.conftest import Api, Caller


@pytest.fixture
def settings() -> Settings:
    return Settings(serve=Serve(replay_to=("canary",)))


async def is_sent(api: Api, name: str, count: int) -> None:
    async def look() -> bool:
        replay: dict[str, Any] = (await api.get(f"/api/v1/replays/{name}")).json()
        return bool(replay["counts"].get("sent", 0) == count)

    await eventually(look)


async def test_a_plan_freezes_the_letters_and_sends_nothing(
    api: Api, place: Place
) -> None:
    await place.store.keep(make_letters(2))

    answer = await api.post("/api/v1/replays/plan", json={"query": "is:pending"})

    assert answer.status_code == 201
    planned = answer.json()
    assert planned["sendable"] == 2
    assert planned["plan"]["targets"] == {"orders": 2}
    assert planned["replay"]["state"] == "planned"
    assert planned["replay"]["counts"] == {"planned": 2}
    await place.store.keep([make_letter(3)])  # too late to be part of it
    name = planned["replay"]["id"]
    started = await api.post(f"/api/v1/replays/{name}/start", json={"expect": 2})
    assert started.json()["state"] == "running"
    await is_sent(api, name, 2)
    assert (await place.letters.counts())["orders"] == {
        State.REPLAYING: 2,
        State.PENDING: 1,
    }


async def test_a_replay_goes_where_the_letters_came_from_and_is_reported(
    api: Api, place: Place
) -> None:
    letters = make_letters(3)
    await place.store.keep(letters)
    wish = {"query": "*", "expect": 3, "rate": 1000.0, "reason": "fixed"}

    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]

    await is_sent(api, name, 3)
    got = await place.engine.broker.source("orders").receive(limit=9, wait=1, lease=9)
    assert {delivery.message.id for delivery in got} == {"m-1", "m-2", "m-3"}
    news = ReplaySettled(letters[0].id, 1, Outcome.CONFIRMED)
    await place.store.settle_replays([news])
    path = f"/api/v1/replays/{name}/report"
    first = (await api.get(path, params={"limit": 2})).json()
    more = {"limit": 2, "after": first["after"]}
    last = (await api.get(path, params=more)).json()
    told = {
        item["letter_id"]: item["outcome"] for item in first["items"] + last["items"]
    }
    assert told == {
        letters[0].id: "confirmed",
        letters[1].id: "sent",
        letters[2].id: "sent",
    }
    assert last["after"] is None


async def test_a_replay_can_be_paused_resumed_and_cancelled(
    api: Api, place: Place
) -> None:
    await place.store.keep(make_letters(30))
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
    api: Api, place: Place
) -> None:
    letters = make_letters(9)
    await place.store.keep(letters)
    wish = {"query": "*", "expect": 9, "care": {"canary": 2}}
    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]
    await is_sent(api, name, 2)
    got = await place.engine.broker.source("orders").receive(limit=9, wait=1, lease=9)
    lineages = [one.message.lineage for one in got if one.message.lineage]
    assert len(lineages) == 2

    await place.store.settle_replays(
        [ReplaySettled(one.letter_id, 1, Outcome.FAILED) for one in lineages]
    )

    async def is_paused() -> bool:
        found = (await api.get(f"/api/v1/replays/{name}")).json()
        return bool(found["state"] == "paused")

    await eventually(is_paused)
    told = (await api.get("/api/v1/audit", params={"target": name})).json()
    assert "2 of 2 failed again, where 10% may" in told["entries"][-1]["reason"]


@pytest.mark.parametrize(
    "care", [{"canary": 0}, {"halt_on": 2}, {"halt_on": -0.1}, {"speed": 1}]
)
async def test_care_that_makes_no_sense_is_refused(
    api: Api, place: Place, care: dict[str, Any]
) -> None:
    await place.store.keep(make_letters(2))

    answer = await api.post("/api/v1/replays/plan", json={"query": "*", "care": care})

    assert answer.status_code == 400
    assert next(iter(care)) in answer.text


async def test_letters_go_only_where_the_server_was_told_they_may(
    api: Api, place: Place
) -> None:
    await place.store.keep(make_letters(1))

    for to in ("http://169.254.169.254/latest", "elsewhere", "orders"):
        answer = await api.post("/api/v1/replays/plan", json={"query": "*", "to": to})
        assert answer.status_code == 400
        assert "serve.replay_to" in answer.json()["detail"]
    wish = {"query": "*", "expect": 1, "to": "canary"}
    name = (await api.post("/api/v1/replays", json=wish)).json()["replay"]["id"]
    await is_sent(api, name, 1)
    assert await place.engine.broker.source("canary").receive(limit=1, wait=1, lease=9)


async def test_what_a_search_finds_is_sent_only_with_its_number(
    api: Api, place: Place
) -> None:
    await place.store.keep(make_letters(2))

    without = await api.post("/api/v1/replays", json={"query": "*"})
    other = await api.post("/api/v1/replays", json={"query": "*", "expect": 3})

    assert (without.status_code, other.status_code) == (400, 409)
    assert (await api.get("/api/v1/replays")).json() == {"replays": [], "after": None}


async def test_letters_that_cannot_be_sent_are_not(api: Api, place: Place) -> None:
    letter = make_letter(state=State.CLOSED)
    await place.store.keep([letter])

    answer = await api.post("/api/v1/replays", json={"ids": [letter.id]})

    assert answer.status_code == 409
    (replay,) = (await api.get("/api/v1/replays")).json()["replays"]
    assert replay["state"] == "cancelled"


async def test_a_replay_that_is_not_there(api: Api) -> None:
    for verb in ("start", "pause", "resume", "cancel"):
        answer = await api.post(f"/api/v1/replays/nothing/{verb}", json={})
        assert answer.status_code == 404
    assert (await api.get("/api/v1/replays/nothing/report")).status_code == 404


async def test_those_limited_to_some_mailboxes_replay_and_see_their_own(
    door: Api, guarded: Place, caller: Caller
) -> None:
    await guarded.store.keep([make_letter(1, source="mails"), make_letter(2)])
    anna = await caller(Role.OPERATOR, "orders", name="anna")
    chief = await caller(Role.ADMIN, name="chief")
    everything = {"query": "*"}

    own = await door.post("/api/v1/replays/plan", json=everything, headers=anna)
    all_of_it = await door.post("/api/v1/replays/plan", json=everything, headers=chief)

    assert own.json()["plan"]["sources"] == {"orders": 1}
    other = all_of_it.json()["replay"]["id"]
    listed = (await door.get("/api/v1/replays", headers=anna)).json()
    assert [replay["actor"] for replay in listed["replays"]] == ["anna"]
    hidden = await door.get(f"/api/v1/replays/{other}", headers=anna)
    assert hidden.status_code == 404


async def test_replays_go_on_where_the_page_before_ended(
    door: Api, guarded: Place, caller: Caller
) -> None:
    await guarded.store.keep([make_letter(1)])
    anna = await caller(Role.OPERATOR, "orders", name="anna")
    chief = await caller(Role.ADMIN, name="chief")
    wish = {"query": "*"}
    made = [
        (await door.post("/api/v1/replays/plan", json=wish, headers=who)).json()
        for who in (anna, chief, anna, chief, anna)
    ]
    names = [one["replay"]["id"] for one in reversed(made)]

    async def walk(who: dict[str, str]) -> list[list[str]]:
        pages, asked = [], {"limit": "2"}
        while asked.get("after", "") is not None and len(pages) < 9:
            page = await door.get("/api/v1/replays", params=asked, headers=who)
            pages.append([replay["id"] for replay in page.json()["replays"]])
            asked["after"] = page.json()["after"]
        return pages

    assert await walk(chief) == [names[:2], names[2:4], names[4:]]
    assert await walk(anna) == [names[0:3:2], names[4:]]
    # Of another's replay no more is said than of one that is not there.
    answers = [
        await door.get("/api/v1/replays", params={"after": name}, headers=anna)
        for name in (names[1], "0" * len(names[1]))
    ]
    assert [answer.status_code for answer in answers] == [400, 400]
    told = [answer.json()["detail"] for answer in answers]
    assert told[0].replace(names[1], "0" * len(names[1])) == told[1]
