"""Fetching deliveries, as long as the broker can be reached and we are not stopped."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from deadletter.core.errors import BackendError, DeadLetterError, Unavailable
from deadletter.core.events import Observer, Received
from deadletter.core.message import Delivery
from deadletter.core.raised import plain_name, text_of
from deadletter.ports import Broker, Reconnecting, Source

from .heartbeat import Heartbeat
from .loop import was_cancelled
from .reach import Reach
from .rereading import Rereading
from .solitude import Solitude
from .trust import Trust

_TEXT_LIMIT: Final = 500


class Fetching:
    """Takes deliveries from a source, one fetch at a time."""

    def __init__(
        self,
        source: Source,
        broker: Broker,
        *,
        wait: float,
        lease: float,
        solitude: Solitude,
        reach: Reach,
        heartbeat: Heartbeat,
        observe: Observer,
        trust: Trust,
    ) -> None:
        self._source = source
        self._broker = broker
        self._wait = wait
        self._lease = lease
        self._solitude = solitude
        self._reach = reach
        self._heartbeat = heartbeat
        self._observe = observe
        self._trust = trust
        self._rereading = Rereading(source, calls=reach.calls, observe=observe)
        self._under_way: asyncio.Future[Sequence[Delivery]] | None = None
        self._stopped = False

    async def receive(self, limit: int, *, alone: bool = False) -> Sequence[Delivery]:
        """Deliveries that are ours; waits for a broker that is away."""
        wait = 0.0 if alone else self._wait
        self._solitude.enter()
        try:
            deliveries = await self._reached(limit, wait, alone=alone)
            deliveries = await self._rereading.sorted_out(deliveries)
        finally:
            self._solitude.leave()
        if deliveries:
            count = len(deliveries)
            self._observe(Received(mailbox=self._source.mailbox, count=count))
        return self._trust.checked(deliveries)

    def stop(self) -> None:
        """Fetch no more. What is under way gives back what it may have claimed."""
        self._stopped = True
        if self._under_way is not None:
            self._under_way.cancel()

    async def _reached(
        self, limit: int, wait: float, *, alone: bool
    ) -> Sequence[Delivery]:
        fetching = self._fetched(limit, wait, alone=alone)
        try:
            return await self._reach.calls.limited("broker", fetching, wait=wait)
        except BackendError:
            # Make it known, and wait until the broker answers again.
            return await self._reach.patiently(
                "broker", lambda: self._fetched(limit, 0.0, alone=alone)
            )

    async def _fetched(
        self, limit: int, wait: float, *, alone: bool
    ) -> Sequence[Delivery]:
        """What the source hands out; nothing when we are stopped meanwhile."""
        self._heartbeat.beat()  # waiting for a broker that is away is a sign of life
        if self._stopped:  # while the broker could not be reached
            return ()
        receiving = self._source.receive(
            limit=limit, wait=wait, lease=self._lease, alone=alone
        )
        self._under_way = asyncio.ensure_future(receiving)
        try:
            return await self._under_way
        except asyncio.CancelledError:
            if was_cancelled() or not self._stopped:
                raise
            return ()
        except DeadLetterError:
            raise
        except Exception as error:
            # Client libraries make whatever they can of bytes that were changed.
            await self._reconnect()
            said = f"{plain_name(type(error))}: {text_of(error, _TEXT_LIMIT)}"
            raise Unavailable(f"its answer cannot be read ({said})") from error

    async def _reconnect(self) -> None:
        """Give up connections whose state nobody knows."""
        if isinstance(self._broker, Reconnecting):
            with suppress(Exception):  # whatever it is, the next fetch shows it
                await self._broker.reconnect()
