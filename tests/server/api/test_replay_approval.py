"""Approval of large replays over HTTP: somebody else agrees, or nothing is sent."""

import pytest

from deadletter.core.access import Role
from deadletter.ports import QueueOptions
from deadletter.server.context import ServerContext
from deadletter.settings import Serve, Settings
from deadletter.testing.fakes import eventually
from office.making import make_letters
from server.api.conftest import Api, Caller


@pytest.fixture
def settings() -> Settings:
    return Settings(serve=Serve(approve_above=2))


@pytest.fixture
async def plan(guarded_api: Api, guarded: ServerContext, caller: Caller) -> str:
    """Return the id of a judged replay of three letters that anna planned."""
    await guarded.engine.broker.create(QueueOptions(name="orders"))
    await guarded.store.keep(make_letters(3))
    anna = await caller(Role.OPERATOR, name="anna")
    body = {"query": "*", "reason": "the bank is back"}
    answer = await guarded_api.post("/api/v1/replays/freeze", json=body, headers=anna)
    name: str = answer.json()["id"]

    async def is_judged() -> bool:
        found = (await guarded_api.get(f"/api/v1/replays/{name}", headers=anna)).json()
        return bool(found["plan"]["is_judged"])

    await eventually(is_judged)
    return name


async def test_a_large_replay_starts_only_after_somebody_else_agreed(
    guarded_api: Api, caller: Caller, plan: str
) -> None:
    anna = await caller(Role.OPERATOR, name="anna")
    berta = await caller(Role.OPERATOR, name="berta")
    path = f"/api/v1/replays/{plan}"

    early = await guarded_api.post(f"{path}/start", json={"expect": 3}, headers=anna)
    own = await guarded_api.post(f"{path}/approve", json={"expect": 3}, headers=anna)
    wrong = await guarded_api.post(f"{path}/approve", json={"expect": 4}, headers=berta)
    needs = (await guarded_api.get("/api/v1/needs", headers=berta)).json()
    approved = await guarded_api.post(f"{path}/approve", json={"expect": 3}, headers=berta)
    twice = await guarded_api.post(f"{path}/approve", json={}, headers=berta)
    after = (await guarded_api.get("/api/v1/needs", headers=berta)).json()
    started = await guarded_api.post(f"{path}/start", json={"expect": 3}, headers=anna)

    assert (early.status_code, own.status_code, wrong.status_code) == (409, 409, 409)
    assert "approval of a second person" in early.json()["detail"]
    assert [one["kind"] for one in needs if one["target"] == plan] == ["approval"]
    assert [one for one in after if one["target"] == plan] == []
    assert (approved.json()["approved_by"], twice.status_code) == ("berta", 409)
    assert (started.status_code, started.json()["state"]) == (200, "running")


async def test_planning_and_starting_at_once_is_no_way_around_it(
    guarded_api: Api, guarded: ServerContext, caller: Caller, plan: str
) -> None:
    anna = await caller(Role.OPERATOR, name="anna")

    large = await guarded_api.post(
        "/api/v1/replays", json={"query": "*", "expect": 3}, headers=anna
    )
    small = await guarded_api.post(
        "/api/v1/replays", json={"query": "*", "expect": 2, "limit": 2}, headers=anna
    )

    assert (large.status_code, small.status_code) == (409, 201)
    assert len(await guarded.store.campaigns(limit=9)) == 3


async def test_progress_and_aftermath_are_for_readers_who_see_the_replay(
    guarded_api: Api, caller: Caller, plan: str
) -> None:
    reader = await caller(Role.READER)
    stranger = await caller(Role.READER, "mails", name="mails")

    for part in ("progress", "aftermath", "verdicts"):
        path = f"/api/v1/replays/{plan}/{part}"
        seen = await guarded_api.get(path, headers=reader)
        hidden = await guarded_api.get(path, headers=stranger)
        assert (seen.status_code, hidden.status_code) == (200, 404)

    progress = (await guarded_api.get(f"/api/v1/replays/{plan}/progress", headers=reader)).json()
    assert [stage["state"] for stage in progress["stages"]] == ["ahead"]
    assert progress["total"] == 3
