"""Authentication: shared lookups, which are never older than the request."""

import asyncio

import pytest

from deadletter.core.access import Role, Token
from deadletter.core.errors import Unavailable
from deadletter.ports import AccessStore
from deadletter.server.auth.authenticator import Authenticator
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock, eventually
from server.conftest import token


class SlowLooks:
    """A store that reads immediately, but answers only when released."""

    def __init__(self, access: AccessStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        self._gate = asyncio.Event()
        self._look = access.token
        monkeypatch.setattr(access, "token", self)

    async def __call__(self, hash: str) -> Token | None:
        found = await self._look(hash)
        self.seen += 1
        await self._gate.wait()
        return found

    def tell(self) -> None:
        self._gate.set()


@pytest.fixture
def looks(access: AccessStore, monkeypatch: pytest.MonkeyPatch) -> SlowLooks:
    return SlowLooks(access, monkeypatch)


@pytest.fixture
def authenticator(access: AccessStore, clock: FakeClock) -> Authenticator:
    return Authenticator(access, clock)


async def test_requests_after_a_revocation_are_not_answered_from_older_state(
    authenticator: Authenticator, guarded: ServerContext, access: AccessStore, looks: SlowLooks
) -> None:
    shown = await token(guarded, Role.READER)
    early = asyncio.create_task(authenticator.token(shown))
    await eventually(lambda: looks.seen == 1)

    await access.revoke(shown.split("_")[1])
    late = asyncio.create_task(authenticator.token(shown))
    looks.tell()

    assert await late is None
    await early  # asked before: either answer was true then


async def test_many_who_ask_at_once_are_looked_up_together(
    authenticator: Authenticator, guarded: ServerContext, looks: SlowLooks
) -> None:
    shown = [await token(guarded, Role.READER, name=name) for name in ("a", "b")]
    looks.tell()

    found = await asyncio.gather(*(authenticator.token(one) for one in shown * 50))

    names = [one.to.name for one in found if one is not None]
    assert names == ["a", "b"] * 50
    assert looks.seen <= 4


async def test_a_cancelled_request_does_not_cancel_others(
    authenticator: Authenticator, guarded: ServerContext, looks: SlowLooks
) -> None:
    shown = await token(guarded, Role.READER)
    leaving, staying = [asyncio.create_task(authenticator.token(shown)) for _ in range(2)]
    await eventually(lambda: looks.seen == 1)

    leaving.cancel()
    looks.tell()

    assert await staying is not None


async def test_a_store_that_never_answers_is_out_of_reach(
    authenticator: Authenticator,
    guarded: ServerContext,
    looks: SlowLooks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deadletter.server.auth.authenticator._PATIENCE", -1.0)

    with pytest.raises(Unavailable):
        await authenticator.token(await token(guarded, Role.READER))
