"""Campaigns sent in the background, each by one process at a time."""

import asyncio
from contextlib import suppress
from typing import Final

from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.errors import (
    BackendError,
    Conflict,
    DeadLetterError,
    Unavailable,
)
from deadletter.core.letter import By
from deadletter.ports import Clock, Ledger, LedgerClaim, LedgerKey, LedgerState

from .replay import Replay, unsent

LEASE: Final = 30.0  # seconds after which others take over from one that is gone
_PLACE: Final = "dlq.replays"  # no mailbox of anybody
_DAY: Final = 86_400.0
_LATEST: Final = 1_000
_WAITS: Final = (1.0, 2.0, 5.0, 10.0)  # seconds, while the store is out of reach


class Sending:
    """
    Sends campaigns, and takes up those whose sender is gone.

    Who sends a campaign holds it in the ledger, with a lease that is renewed. A
    campaign that nobody ever held there is sent by somebody else, such as the
    command, and left alone. Without a ledger only what is started here is sent.
    """

    def __init__(
        self,
        replay: Replay,
        ledger: Ledger | None,
        clock: Clock,
        name: str,
        *,
        lease: float = LEASE,
    ) -> None:
        self._replay = replay
        self._ledger = ledger
        self._clock = clock
        self._name = name
        self._lease = lease
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> frozenset[str]:
        """The campaigns that are sent here."""
        return frozenset(self._tasks)

    def open(self) -> None:
        """Look after campaigns from now on."""
        self._watch = asyncio.create_task(self._look_after())

    def ready(self) -> str | None:
        """Why campaigns are not looked after; None while they are."""
        watch = self._watch
        if watch is None or not watch.done() or self._stop.is_set():
            return None
        return f"it died: {watch.exception()!r}"

    async def close(self) -> None:
        """Finish the batches under way; what is left is for the next to take up."""
        self._stop.set()
        tasks = [*self._tasks.values(), *([self._watch] if self._watch else [])]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, campaign: str) -> bool:
        """Send what is left of a running campaign; whether it is we who do it."""
        if campaign in self._tasks:
            return True
        claim = await self._claim(campaign, self._lease)
        if self._ledger is not None and claim is None:
            return False
        if campaign not in self._tasks and not self._stop.is_set():
            self._tasks[campaign] = asyncio.create_task(self._run(campaign))
        return True

    async def adopt(self) -> None:
        """Take up campaigns that a process like this one left behind."""
        if self._ledger is None:
            return
        left = [
            one.id
            for one in await self._replay.latest(limit=_LATEST)
            if one.state is CampaignState.RUNNING
            and unsent(one)
            and one.id not in self._tasks
        ]
        held = await self._ledger.look([self._key(id_) for id_ in left])
        for id_, state in zip(left, held, strict=True):
            if state is LedgerState.PROCESSING:
                await self.send(id_)

    async def _look_after(self) -> None:
        while not self._stop.is_set():
            with suppress(BackendError):  # it will be back, and so are we
                await self.adopt()
            await self._until(self._lease / 2)

    async def _run(self, campaign: str) -> None:
        stop = asyncio.Event()
        ends = asyncio.create_task(self._hold(campaign, stop))
        try:
            await self._send(campaign, stop)
        finally:
            ends.cancel()
            await asyncio.gather(ends, return_exceptions=True)
            self._tasks.pop(campaign, None)
        if self._stop.is_set():
            await self._claim(campaign, 0.0)  # over at once: the next need not wait
        elif not stop.is_set():
            with suppress(BackendError):  # then the lease runs out by itself
                await self._let_go(campaign)

    async def _send(self, campaign: str, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                found = await self._replay.run(campaign, stop=stop)
            except Unavailable:
                await self._until(_WAITS[min(failures, len(_WAITS) - 1)], stop)
                failures += 1
                continue
            except DeadLetterError as error:  # for good: somebody has to look at it
                with suppress(Unavailable):
                    await self._put_off(campaign, str(error))
                    return
            failures = 0
            if not _goes_on(found):  # or it was resumed just as it ended
                return

    async def _put_off(self, campaign: str, reason: str) -> None:
        with suppress(Conflict):  # cancelled meanwhile
            await self._replay.pause(campaign, By("server", reason[:1_000]))

    async def _hold(self, campaign: str, stop: asyncio.Event) -> None:
        """Renew the lease; stop in time if that cannot be done."""
        ends_at = self._clock.monotonic() + self._lease
        closing = asyncio.create_task(self._stop.wait())
        try:
            while not stop.is_set():
                await asyncio.wait([closing], timeout=self._lease / 3)
                if closing.done():
                    stop.set()
                    return
                try:
                    renewed = await self._claim(campaign, self._lease)
                except BackendError:
                    if self._clock.monotonic() < ends_at:
                        continue
                    renewed = None
                if renewed is None and self._ledger is not None:
                    stop.set()
                ends_at = self._clock.monotonic() + self._lease
        finally:
            closing.cancel()

    async def _let_go(self, campaign: str) -> None:
        """Say that nobody sends it now, unless somebody resumed it meanwhile."""
        claim = await self._claim(campaign, self._lease)
        if self._ledger is None or claim is None or campaign in self._tasks:
            return
        # Failed is a word of the ledger for "may be taken up again".
        await self._ledger.finish([(claim, LedgerState.FAILED)], ttl=_DAY)
        if _goes_on(await self._replay.status(campaign)):
            await self.send(campaign)

    async def _claim(self, campaign: str, lease: float) -> LedgerClaim | None:
        if self._ledger is None:
            return None
        (claim,) = await self._ledger.begin([self._key(campaign)], lease=lease)
        return claim if claim.mine else None

    def _key(self, campaign: str) -> LedgerKey:
        return LedgerKey(_PLACE, campaign, holder=self._name)

    async def _until(self, seconds: float, stop: asyncio.Event | None = None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await (stop or self._stop).wait()
        except TimeoutError:
            pass


def _goes_on(campaign: Campaign) -> bool:
    return campaign.state is CampaignState.RUNNING and bool(unsent(campaign))
