"""The first run: a token for the first administrator, and where not to listen."""

import asyncio

import pytest

from deadletter.core.access import Identity, Role
from deadletter.core.letter import By
from deadletter.ports import AccessStore
from deadletter.server.auth.hosts import bind_problem
from deadletter.server.auth.keys import Keys, first_token
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from server.auth.conftest import TOKENS, Client, acts, bearer

DAY = 86_400.0


async def test_the_first_run_makes_a_token_that_works(
    visitor: Client, guarded: ServerContext, access: AccessStore, clock: FakeClock
) -> None:
    shown = await first_token(access, guarded.store, clock)
    again = await first_token(access, guarded.store, clock)

    assert shown is not None
    assert again is None
    made = await visitor.post(TOKENS, json={"name": "me"}, headers=bearer(shown))
    assert made.status_code == 201
    assert [(e.actor, e.action) for e in await acts(guarded)] == [
        ("dlq serve", "issue"),
        ("first-administrator", "issue"),
    ]


async def test_the_first_token_lasts_a_day_and_is_replaced_if_there_is_no_other(
    visitor: Client, guarded: ServerContext, access: AccessStore, clock: FakeClock
) -> None:
    first = await first_token(access, guarded.store, clock)
    assert first is not None
    clock.advance(DAY)

    stale = await visitor.get(TOKENS, headers=bearer(first))
    second = await first_token(access, guarded.store, clock)

    assert stale.status_code == 401
    assert second is not None
    fresh = await visitor.get(TOKENS, headers=bearer(second))
    assert fresh.status_code == 200


async def test_no_first_token_is_created_if_tokens_exist(
    guarded: ServerContext, access: AccessStore, clock: FakeClock
) -> None:
    keys = Keys(access, guarded.store, clock)
    await keys.issue(Identity(name="x", role=Role.READER), By("test"))

    assert await first_token(access, guarded.store, clock) is None


async def test_of_servers_that_start_at_once_one_makes_it(
    guarded: ServerContext, access: AccessStore, clock: FakeClock
) -> None:
    made = await asyncio.gather(*(first_token(access, guarded.store, clock) for _ in range(5)))

    assert len([shown for shown in made if shown]) == 1
    assert len(await access.tokens()) == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "LocalHost"]
)
def test_on_this_machine_access_may_be_off(host: str) -> None:
    assert bind_problem(host, access=False) is None


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "", "10.0.0.1", "fe80::1", "example.org", "*"),
        *("127.0.0.1.example.org", "localhost.example.org", "::ffff:10.0.0.1"),
    ],
)
def test_elsewhere_it_may_not(host: str) -> None:
    problem = bind_problem(host, access=False)

    assert problem is not None
    assert "127.0.0.1" in problem
    assert bind_problem(host, access=True) is None
