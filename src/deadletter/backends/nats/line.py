"""
One client of the library after another, for those the library itself gives up on.

It reconnects when a connection is cut. It does not when the server answers what it
cannot read, or refuses what reached it changed, or says nothing any more: then it is
closed for good, or waits for minutes and looks well. A client like that is replaced.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec.structs import replace
from nats.aio.client import Client

from deadletter.core.errors import Unavailable
from deadletter.nats_login import Login, connected, farewell

_CONNECTING: Final = 10.0  # seconds for a connection to be made
_PAUSES: Final = (0.1, 0.5, 1.0, 2.0)  # seconds between tries; the last one stays
_RECONNECTING: Final = 10.0  # seconds the library has to come back by itself
_HABITS: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "reconnect_time_wait": 0.2,
    "max_reconnect_attempts": -1,  # for ever
    "pending_size": 0,  # while cut off nothing is kept, to be sent too late
}


class Hearer(Protocol):
    """Whoever wants to know what becomes of the connection."""

    async def cut(self) -> None:
        """It is gone: whoever waits for an answer waits in vain."""

    async def error(self, error: Exception) -> None:
        """The library noticed something."""

    async def begun(self, client: Client) -> None:
        """There is another client: subscribe again."""


class Line:
    """The client there is, replaced whenever it does not work any more."""

    def __init__(self, login: Login, hearer: Hearer) -> None:
        self._login = login
        self._hearer = hearer
        self._client: Client | None = None
        self._cut_at: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Connect for the first time; raises what the library does."""
        self._client = await self._connected(())

    @property
    def client(self) -> Client:
        """The client, connected; Unavailable while it is not."""
        client = self._client
        if client is None or self._renewing is not None:
            raise Unavailable("the connection to the server is being made anew")
        if not client.is_connected:
            self._look_at(client)
            # What is sent now would be kept, and sent when it may not be right.
            raise Unavailable("the connection to the server is cut")
        return client

    def renew(self) -> None:
        """Give up the client, which does not answer, for another one."""
        if self._renewing is None and not self._closed:
            self._renewing = asyncio.create_task(self._renew())
            self._renewing.add_done_callback(self._renewed)

    async def close(self) -> None:
        """Disconnect, for good."""
        self._closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._client is not None:
            await _abandon(self._client)

    def _look_at(self, client: Client) -> None:
        """Replace a client that the library has given up, or does not bring back."""
        now = asyncio.get_running_loop().time()
        if self._cut_at is None:
            self._cut_at = now
        if client.is_closed or now - self._cut_at > _RECONNECTING:
            self.renew()

    async def _renew(self) -> None:
        old = self._client
        seeds: Sequence[str] = ()
        if old is not None:
            seeds = [f"nats://{uri.netloc}" for uri in old.discovered_servers]
            await _abandon(old)
        await self._hearer.cut()
        tries = 0
        while True:
            try:
                client = await self._connected(seeds)
                await self._hearer.begun(client)
            except Exception as error:  # noqa: BLE001 -- whatever it was, it may pass
                await self._hearer.error(error)
            else:
                self._client, self._cut_at = client, None
                return
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _renewed(self, task: "asyncio.Task[None]") -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()

    async def _connected(self, seeds: Sequence[str]) -> Client:
        login = self._login
        if seeds:
            named = [seed for seed in seeds if seed not in login.servers]
            login = replace(login, servers=[*login.servers, *named])
        async with asyncio.timeout(_CONNECTING):
            return await connected(
                login,
                disconnected_cb=self._on_cut,
                reconnected_cb=self._on_back,
                closed_cb=self._on_closed,
                error_cb=self._hearer.error,
                **_HABITS,
            )

    async def _on_cut(self) -> None:
        if self._cut_at is None:
            self._cut_at = asyncio.get_running_loop().time()
        await self._hearer.cut()

    async def _on_back(self) -> None:
        self._cut_at = None

    async def _on_closed(self) -> None:
        client = self._client
        if client is not None and client.is_closed:
            self.renew()


async def _abandon(client: Client) -> None:
    """Disconnect, from a server too that takes and answers nothing."""
    await farewell(client)
    with suppress(AttributeError):  # the library has no name for it
        client._transport._io_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001
