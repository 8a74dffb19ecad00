"""Ownership belongs to a token: a new token of the same name inherits nothing."""

from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.ports import QueueOptions
from deadletter.server.context import ServerContext
from deadletter.settings import Serve, Settings
from office.making import make_letters
from server.auth.conftest import TOKENS, Client, bearer, visiting
from server.conftest import context_of, token

REPLAYS = "/api/v1/replays"


@pytest.fixture
def settings() -> Settings:
    return Settings(serve=Serve(replay_to=("orders", "mails", "secret")))


@pytest.fixture
async def bo(guarded: ServerContext) -> str:
    await guarded.store.keep(make_letters(3))
    await guarded.engine.broker.create(QueueOptions(name="orders"))
    return await token(guarded, Role.OPERATOR, "orders", name="bo")


async def planned(client: Client, shown: str, **wish: Any) -> str:
    body = {"query": "is:pending", "rate": 0.1, **wish}
    made = await client.post(f"{REPLAYS}/plan", json=body, headers=bearer(shown))
    assert made.status_code == 201, made.text
    name: str = made.json()["replay"]["id"]
    return name


async def renewed(client: Client, guarded: ServerContext, shown: str, admin: str) -> str:
    """Revoke a token and return a new one with the same name and rights."""
    gone = await client.delete(f"{TOKENS}/{shown.split('_')[1]}", headers=bearer(admin))
    assert gone.status_code == 204
    return await token(guarded, Role.OPERATOR, "orders", name="bo")


async def test_a_new_token_of_an_old_name_inherits_no_replay(
    visitor: Client, guarded: ServerContext, bo: str, admin: str
) -> None:
    name = await planned(visitor, bo)
    own = await visitor.get(f"{REPLAYS}/{name}", headers=bearer(bo))
    new = bearer(await renewed(visitor, guarded, bo, admin))

    listed = await visitor.get(REPLAYS, headers=new)
    acts = await visitor.get("/api/v1/audit", headers=new)
    tried = {
        act: (await visitor.post(f"{REPLAYS}/{name}/{act}", json={}, headers=new)).status_code
        for act in ("start", "resume", "pause", "cancel")
    }
    for path in (f"{REPLAYS}/{name}", f"{REPLAYS}/{name}/report"):
        tried[path] = (await visitor.get(path, headers=new)).status_code

    assert own.status_code == 200
    assert listed.json()["replays"] == []
    assert name not in acts.text
    assert set(tried.values()) == {404}, tried


async def test_a_new_token_of_an_old_name_is_told_no_old_answer(
    visitor: Client, guarded: ServerContext, bo: str, admin: str
) -> None:
    wish = {"query": "is:pending", "reason": "mine"}
    once = {"Idempotency-Key": "k1"}
    first = await visitor.post(f"{REPLAYS}/plan", json=wish, headers={**bearer(bo), **once})
    again = await visitor.post(f"{REPLAYS}/plan", json=wish, headers={**bearer(bo), **once})
    new = await renewed(visitor, guarded, bo, admin)
    other = await visitor.post(f"{REPLAYS}/plan", json=wish, headers={**bearer(new), **once})

    ids = [one.json()["replay"]["id"] for one in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


async def test_every_token_is_a_principal_of_its_own(
    visitor: Client, guarded: ServerContext, admin: str
) -> None:
    assert guarded.access is not None
    for _ in range(3):
        made = await visitor.post(TOKENS, json={"name": "ci"}, headers=bearer(admin))
        assert made.status_code == 201
    await visitor.post("/api/v1/session", json={"token": made.json()["token"]})

    tokens = await guarded.access.tokens()
    principals = {token.to.principal for token in tokens}

    assert len(principals) == 4
    assert "" not in principals
    assert "principal" not in (await visitor.get("/api/v1/session")).text


async def test_letters_go_only_where_the_sender_may_see(
    visitor: Client, guarded: ServerContext, bo: str, admin: str
) -> None:
    for name in ("mails", "secret"):
        await guarded.engine.broker.create(QueueOptions(name=name))
    refused = {}
    for to in ("mails", "secret", "nosuch", "orders-2"):
        for path in (REPLAYS, f"{REPLAYS}/plan"):
            answer = await visitor.post(
                path, json={"query": "is:pending", "expect": 3, "to": to}, headers=bearer(bo)
            )
            assert answer.status_code == 400, (to, path)
            refused[to, path] = answer.text.replace(to, "?")

    assert len(set(refused.values())) == 1
    assert not [text for text in refused.values() if "mails" in text or "3" in text]
    assert await planned(visitor, bo, to="orders")
    assert await planned(visitor, admin, to="mails")


async def test_a_target_is_judged_again_at_the_start(
    visitor: Client, guarded: ServerContext, admin: str, bo: str
) -> None:
    await guarded.engine.broker.create(QueueOptions(name="mails"))
    name = await planned(visitor, admin, to="mails")
    strict = context_of(guarded.engine, settings=Settings(), guarded=True)
    async with visiting(strict) as later:
        answers = [
            await later.post(f"{REPLAYS}/{name}/{act}", json={}, headers=bearer(admin))
            for act in ("start", "resume")
        ]

    assert [answer.status_code for answer in answers] == [400, 400]
