"""Campaigns sent in the background, each by one process at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from deadletter.core.campaign import Campaign, CampaignState, unsent
from deadletter.core.errors import BackendError, Conflict, DeadLetterError, NotFound, Unavailable
from deadletter.core.events import LoopDied, Observer
from deadletter.core.letter import By
from deadletter.core.redact import redact
from deadletter.ports import Clock, Ledger, LedgerClaim, LedgerKey, LedgerState

from .approval import check_approved
from .replay import Replay
from .replay_steps import until

LEASE: Final = 30.0  # seconds after which others take over from one that is gone
_PLACE: Final = "dlq.replays"  # no mailbox of anybody
_DAY: Final = 86_400.0
_LATEST: Final = 1_000
_WAITS: Final = (1.0, 2.0, 5.0, 10.0)  # seconds before it is tried again
_LOOK: Final = 1.5  # seconds between looks whether it may still be sent
_BLIND: Final = 5.0  # seconds without a look after which nothing more is sent

Denied: TypeAlias = Callable[[Campaign], Awaitable[str | None]]
"""A function that returns why a campaign may not be sent; None if it may."""


async def nobody_is_asked(_: Campaign) -> str | None:
    """Allow every campaign, where access control is off."""
    return None


class ReplaySender:
    """
    Sends campaigns, and takes over those whose sender is gone.

    The sender of a campaign holds a lease in the ledger, and renews it. A campaign without such
    a lease is sent by somebody else, such as the command, and left alone. Without a ledger,
    only campaigns started here are sent.

    If the principal that a campaign runs as loses the right to it, the campaign is paused with
    the reason. This is checked before the first letter and every few seconds.
    """

    def __init__(
        self,
        replay: Replay,
        ledger: Ledger | None,
        name: str,
        *,
        clock: Clock,
        observe: Observer,
        lease: float = LEASE,
        denied: Denied = nobody_is_asked,
        approve_above: int = 0,
    ) -> None:
        self._replay = replay
        self._ledger = ledger
        self._name = name
        self._clock = clock
        self._observe = observe
        self._lease = lease
        self._denied = denied
        self._approve_above = approve_above
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._judging: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()

    @property
    def under_way(self) -> frozenset[str]:
        """The campaigns that are being sent here."""
        return frozenset(self._tasks)

    async def run(self, stop: asyncio.Event) -> None:
        """Take over campaigns and plans that others left behind, until `stop` is set."""
        while not stop.is_set():
            with suppress(BackendError):  # it will be back, and so are we
                await self.adopt()
                await self.adopt_plans()
            await until(stop, self._lease / 2)

    async def close(self) -> None:
        """Finish the current batches; others take over the rest."""
        self._stop.set()
        tasks = [*self._tasks.values(), *self._judging.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def start(self, campaign: str, by: By, *, take_over: bool = False) -> Campaign:
        """
        Let a campaign run, and send it unless somebody else does.

        The lease is taken before the campaign runs: a running campaign without a lease would be
        left to somebody else for good. Raises Conflict if a second person has to approve it.
        """
        check_approved(await self._replay.status(campaign), self._approve_above)
        claim = await self._claim(campaign, self._lease)
        try:
            found = await self._replay.resume(campaign, by, take_over=take_over)
        except (Conflict, NotFound):
            if campaign not in self._tasks:
                await self._give_up(claim)
            raise
        if claim is not None or self._ledger is None:
            self._begin(campaign)
        return found

    async def send(self, campaign: str) -> bool:
        """Send the rest of a running campaign; return whether this process sends it."""
        if campaign in self._tasks:
            return True
        claim = await self._claim(campaign, self._lease)
        if self._ledger is not None and claim is None:
            return False
        self._begin(campaign)
        return True

    async def adopt(self) -> None:
        """Take over campaigns that another server left behind."""
        if self._ledger is None:
            return
        left = [
            one.id
            for one in await self._replay.latest(limit=_LATEST, only=CampaignState.RUNNING)
            if unsent(one) and one.id not in self._tasks
        ]
        held = await self._ledger.look([self._key(id_) for id_ in left])
        for id_, state in zip(left, held, strict=True):
            if state is LedgerState.PROCESSING:
                await self.send(id_)

    async def adopt_plans(self) -> None:
        """Judge plans whose letters nobody judges."""
        plans = await self._replay.latest(limit=_LATEST, only=CampaignState.PLANNED)
        for one in plans:
            if one.plan is not None and not one.plan.is_judged:
                await self.judge(one.id)

    async def judge(self, campaign: str) -> bool:
        """
        Judge the letters of a kept plan in the background.

        Returns whether this process does; another one may be at it.
        """
        if campaign in self._judging:
            return True
        claim = await self._claim(_plan_key(campaign), self._lease)
        if self._ledger is not None and claim is None:
            return False
        if campaign not in self._judging and not self._stop.is_set():
            self._judging[campaign] = asyncio.create_task(self._judge(campaign))
        return True

    async def _judge(self, campaign: str) -> None:
        claimed_at, failures = self._clock.monotonic(), 0
        try:
            while not self._stop.is_set():
                try:
                    if not await self._replay.judge_some(campaign):
                        break
                except (Conflict, NotFound):
                    break
                except Unavailable:
                    await until(self._stop, _WAITS[min(failures, len(_WAITS) - 1)])
                    failures += 1
                    continue
                failures = 0
                if self._clock.monotonic() - claimed_at > self._lease / 3:
                    claimed_at = self._clock.monotonic()
                    if not await self._holds(_plan_key(campaign)):
                        return
            with suppress(BackendError):  # then the lease runs out by itself
                await self._give_up(await self._claim(_plan_key(campaign), self._lease))
        except Exception as error:  # noqa: BLE001 -- whatever it is, others are judged
            text = f"{campaign}: {type(error).__name__}: {error}"
            self._observe(LoopDied(mailbox="", loop="plan", text=redact(text)))
        finally:
            self._judging.pop(campaign, None)

    async def _holds(self, campaign: str) -> bool:
        return self._ledger is None or await self._claim(campaign, self._lease) is not None

    def _begin(self, campaign: str) -> None:
        if campaign not in self._tasks and not self._stop.is_set():
            self._tasks[campaign] = asyncio.create_task(self._run(campaign))

    async def _run(self, campaign: str) -> None:
        stop = asyncio.Event()
        beside = [
            asyncio.create_task(self._hold(campaign, stop)),
            asyncio.create_task(self._watch(campaign, stop)),
        ]
        try:
            is_over = await self._send(campaign, stop)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            self._tasks.pop(campaign, None)
        with suppress(BackendError):  # then the lease runs out by itself
            if is_over:
                await self._let_go(campaign)
            elif self._stop.is_set():
                await self._claim(campaign, 0.0)  # over at once: nobody need wait

    async def _send(self, campaign: str, stop: asyncio.Event) -> bool:
        """Send until told to stop; return whether nothing is left to send."""
        failures = 0
        while not stop.is_set():
            try:
                if not await self._may_go(campaign):
                    return True
                found = await self._replay.run(campaign, stop=stop)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is not forgotten
                if await self._failed(campaign, error, failures):
                    return True
                await until(stop, _WAITS[min(failures, len(_WAITS) - 1)])
                failures += 1
                continue
            failures = 0
            if not _goes_on(found):  # or it was resumed just as it ended
                return True
        return False

    async def _failed(self, campaign: str, error: Exception, before: int) -> bool:
        """Handle what ended the sending; return whether the campaign waits for somebody."""
        if isinstance(error, Unavailable):
            return False
        if not isinstance(error, DeadLetterError):
            text = f"{campaign}: {type(error).__name__}: {error}"
            self._observe(LoopDied(mailbox="", loop="replay", text=redact(text)))
            if before < len(_WAITS):
                return False
        try:
            await self._put_off(campaign, redact(str(error)))
        except BackendError:
            return False
        return True

    async def _put_off(self, campaign: str, reason: str) -> None:
        with suppress(Conflict, NotFound):  # it has ended meanwhile
            await self._replay.pause(campaign, By("dlq serve", reason[:1_000]))

    async def _may_go(self, campaign: str) -> bool:
        """Return whether the campaign may be sent now; if not, pause it with the reason."""
        found = await self._replay.status(campaign)
        reason = await self._denied(found)
        if reason is None:
            return True
        await self._put_off(campaign, reason)
        return False

    async def _watch(self, campaign: str, stop: asyncio.Event) -> None:
        """Stop as soon as the campaign may not be sent, or that is unknown for too long."""
        seen_at = self._clock.monotonic()
        while not stop.is_set():
            await until(stop, _LOOK)
            asked_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(_BLIND):
                    if not await self._may_go(campaign):
                        break
            except NotFound:
                break
            except (BackendError, TimeoutError):
                if self._clock.monotonic() - seen_at > _BLIND:
                    break  # it is taken up again when somebody can tell
                continue
            seen_at = asked_at
        stop.set()

    async def _hold(self, campaign: str, stop: asyncio.Event) -> None:
        """Renew the lease; stop in time if that fails."""
        ends_at = self._clock.monotonic() + self._lease
        closing = asyncio.create_task(self._stop.wait())
        try:
            while not stop.is_set():
                await asyncio.wait([closing], timeout=self._lease / 3)
                if closing.done():
                    return
                left = ends_at - self._clock.monotonic()
                asked_at = self._clock.monotonic()
                try:
                    async with asyncio.timeout(max(left, 0.0)):
                        renewed = await self._claim(campaign, self._lease)
                except Exception:  # noqa: BLE001 -- whatever it is, it is not renewed
                    if self._clock.monotonic() < ends_at:
                        continue
                    return
                if renewed is None and self._ledger is not None:
                    return
                ends_at = asked_at + self._lease
        finally:
            stop.set()  # nobody may send what is not held
            closing.cancel()

    async def _let_go(self, campaign: str) -> None:
        """Release the lease, unless somebody resumed the campaign meanwhile."""
        claim = await self._claim(campaign, self._lease)
        if claim is None or campaign in self._tasks:
            return
        await self._give_up(claim)
        if _goes_on(await self._replay.status(campaign)):
            await self.send(campaign)

    async def _give_up(self, claim: LedgerClaim | None) -> None:
        if self._ledger is not None and claim is not None:
            # Failed is a word of the ledger for "may be taken up again".
            await self._ledger.finish([(claim, LedgerState.FAILED)], ttl=_DAY)

    async def _claim(self, campaign: str, lease: float) -> LedgerClaim | None:
        if self._ledger is None:
            return None
        (claim,) = await self._ledger.begin([self._key(campaign)], lease=lease)
        return claim if claim.mine else None

    def _key(self, campaign: str) -> LedgerKey:
        return LedgerKey(_PLACE, campaign, holder=self._name)


def _plan_key(campaign: str) -> str:
    return f"{campaign}/plan"


def _goes_on(campaign: Campaign) -> bool:
    return campaign.state is CampaignState.RUNNING and bool(unsent(campaign))
