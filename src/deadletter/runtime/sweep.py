"""
The second decider: for deliveries whose worker is gone.

Takes back what lost workers held, so that it is run again, alone, and buries what
is past saving even where no worker is left to do it. Any process may sweep, and
all of them may at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, structs

from deadletter.core.campaign import Outcome
from deadletter.core.errors import BackendError
from deadletter.core.events import ClockJumped, Observer, OutOfReach, SuspectsFound
from deadletter.core.failure import Bury, Fail
from deadletter.core.message import Delivery
from deadletter.core.policy import DLQPolicy, doom, refusal, refused_history
from deadletter.core.signing import Keys
from deadletter.core.text import format_duration
from deadletter.ports import (
    PROCESS_KEYS,
    Acked,
    AtomicBurial,
    Broker,
    Clock,
    Dice,
    Fate,
    Kept,
    Ledger,
    LedgerClaim,
    LedgerState,
    LetterStore,
    ReplaySettled,
    Swept,
)

from .availability import Calls
from .deliveries import ClaimedDelivery, ExclusiveGate, Heartbeat, Trust
from .idempotency import ledger_key, ledger_state
from .outcomes import (
    AT_ONCE,
    Finished,
    as_kept,
    burial_of,
    bury,
    copy_letters,
    keeper,
    report,
    send_reply,
    worded,
)

TOLERANCE: Final = 2.0  # seconds; clocks that are only being corrected drift by less
_RENEWED: Final = 600.0  # seconds after which slow drift is forgotten
_SHOWN: Final = 900.0  # seconds for which a jump is mentioned in health


class _Mark(Struct, frozen=True):
    """A wall-clock time, and between which monotonic times it was read."""

    at: datetime
    began: float
    ended: float


class ClockWatch:
    """
    Compares the clock that due times are judged by with the time that really passed.

    That clock is the store's where the store has one, and this machine's elsewhere.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: _Mark | None = None
        self._last: tuple[float, datetime, float] | None = None  # when, at, by

    def began(self) -> float:
        """Return the moment to hand to `note`, before the clock is read."""
        return self._clock.monotonic()

    def note(self, at: datetime | None, began: float) -> float:
        """
        Take note of a time read since `began`; None is this machine's own.

        Returns the seconds by which the clock jumped since the last notes, 0 if it
        did not.
        """
        ended = self._clock.monotonic()
        mark = _Mark(self._clock.now() if at is None else at, began, ended)
        before = self._since
        if before is None:
            self._since = mark
            return 0.0
        passed = (mark.at - before.at).total_seconds()
        # The time was read at some moment between two others, so this is a range.
        least, most = mark.began - before.ended, mark.ended - before.began
        jump = passed - most if passed > most else min(0.0, passed - least)
        if abs(jump) <= TOLERANCE:
            if most > _RENEWED:
                self._since = mark
            return 0.0
        self._since = mark
        self._last = mark.ended, mark.at, jump
        return jump

    def sentence(self) -> str | None:
        """Describe the last jump while it is recent."""
        if self._last is None:
            return None
        when, at, by = self._last
        if self._clock.monotonic() - when > _SHOWN:
            return None
        return f"the clock jumped by {signed(by)}, to {at:%Y-%m-%d %H:%M:%S} UTC"


def signed(seconds: float) -> str:
    """Return a duration with its sign, to the second."""
    whole = timedelta(seconds=round(seconds)).total_seconds()
    return f"{'+' if whole > 0 else ''}{format_duration(whole)}"


LEASE: Final = 60.0  # seconds the doomed are ours
LEDGER_LEASE: Final = 60.0  # seconds a key is ours while we bury
LEDGER_TTL: Final = 30 * 86_400.0


class Sweep:
    """Sweeps a broker's mailboxes now and then."""

    name = "sweep"

    def __init__(
        self,
        *,
        broker: Broker,
        letters: LetterStore,
        atomic_burial: AtomicBurial | None,
        ledger: Ledger | None,
        policies: Mapping[str, DLQPolicy],
        gate: ExclusiveGate,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        interval: float = 1.0,
        version: str = "",
        keys: Keys = PROCESS_KEYS,
    ) -> None:
        self.heartbeat = Heartbeat(clock)
        self._broker = broker
        self._letters = letters
        self._atomic_burial = atomic_burial
        self._ledger = ledger
        self._policies = policies
        self._gate = gate
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._interval = interval
        self._version = version
        self._keys = keys
        self._trust = Trust(broker.features, keys, observe)
        self._trouble: str | None = None
        self._calls = Calls(clock)
        self._clock_watch = ClockWatch(clock)

    def note(self) -> str | None:
        """Describe what people should know although sweeping works."""
        return self._clock_watch.sentence()

    def ready(self) -> str | None:
        """Return why sweeping does not work at the moment; None when it does."""
        return self._trouble or self._calls.complaint()

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep every `interval` seconds until `stop` is set."""
        waiting = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self.heartbeat.beat()
                await self._guarded()
                await asyncio.wait({waiting}, timeout=self._interval)
        finally:
            waiting.cancel()

    async def once(self) -> int:
        """Sweep now; how many deliveries were taken back or buried."""
        began = self._clock_watch.began()
        found = await self._broker.sweep(lease=LEASE)
        self._look_at_clock(found, began)
        if found.lost:
            self._observe(SuspectsFound(mailbox="*", lost=found.lost))
        self._gate.suspects.update(found.suspects)
        by_mailbox: dict[str, list[Delivery]] = {}
        for delivery in self._trust.checked(found.doomed):
            by_mailbox.setdefault(delivery.mailbox, []).append(delivery)
        for mailbox, doomed in by_mailbox.items():
            await self._bury(mailbox, doomed)
        if self._ledger is not None:
            await self._ledger.forget()
        return found.lost + len(found.doomed)

    def _look_at_clock(self, found: Swept, began: float) -> None:
        jump = self._clock_watch.note(found.at, began)
        if jump or found.misdated:
            self._observe(
                ClockJumped(mailbox="*", seconds=jump, shortened=found.misdated, ahead=found.ahead)
            )

    async def _guarded(self) -> None:
        try:
            while await self._calls.limited("sweep", self.once()):
                self.heartbeat.beat()
        except BackendError as error:
            if self._trouble is None:
                self._observe(OutOfReach(mailbox="*", what="sweep", text=str(error), tries=1))
            self._trouble = f"sweeping failed: {error}"
        else:
            self._trouble = None

    async def _bury(self, mailbox: str, doomed: Sequence[Delivery]) -> None:
        doomed, claims = await self._unhandled(mailbox, doomed)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        policy = self._policies.get(mailbox) or await self._usual(mailbox)
        # The sweep's claim is not an attempt: what is refused is the next one.
        nexts = [structs.replace(d, attempt=d.attempt + 1) for d in doomed]
        ended = [self._end(delivery, policy, now, monotonic) for delivery in nexts]
        # Keep first, forget second, as everywhere.
        kept = await self._keep(mailbox, ended, policy, now)
        # What the office refuses stays claimed, and is tried again when our lease
        # has run out: handed back it would be found again at once.
        ended = [f for f in ended if isinstance(f.decision, Fail) or f.held in kept]
        await self._fail_replays([f for f in ended if isinstance(f.decision, Fail)])
        await self._finish(claims, ended)
        await self._reply(ended, policy, now)
        if not ended:
            return
        ours = await self._broker.source(mailbox).settle(
            [Acked(f.held.delivery, f.fate, history=f.history) for f in ended]
        )
        for finished, applied in zip(ended, ours, strict=True):
            answer = kept.get(finished.held)
            report(finished, answer, self._observe, applied=applied, consumer=self.name)

    async def _usual(self, mailbox: str) -> DLQPolicy:
        """Return the policy for sweeping a mailbox of other workers: its own dead queue."""
        queues = await self._broker.queues()
        named = (q.options.dead_queue for q in queues if q.options.name == mailbox)
        return DLQPolicy(dead_queue=next(named, None))

    def _end(
        self, delivery: Delivery, policy: DLQPolicy, now: datetime, monotonic: float
    ) -> Finished:
        """Return the end of an exhausted delivery, as if a worker had refused it."""
        decision = doom(delivery, policy, now)
        failure = refusal(delivery, decision, now)
        return Finished(
            held=ClaimedDelivery(delivery, monotonic),
            decision=decision,
            failure=failure,
            history=refused_history(delivery, failure, now),
            fate=Fate.BURIED if isinstance(decision, Bury) else Fate.FAILED,
        )

    async def _keep(
        self, mailbox: str, ended: Sequence[Finished], policy: DLQPolicy, now: datetime
    ) -> dict[ClaimedDelivery, Kept]:
        """Keep the letters of those that are given up, and copy them."""
        burials = {
            finished.held: burial_of(finished, now=now, consumer=self.name, version=self._version)
            for finished in ended
            if isinstance(finished.decision, Bury)
        }
        keep = keeper(
            self._broker.source(mailbox),
            self._letters,
            self._atomic_burial,
            lease=LEASE,
            patience=AT_ONCE,
        )
        answers = await bury(keep, list(burials.values()), self._observe)
        kept = {
            held: answer
            for held, answer in zip(burials, answers, strict=True)
            if isinstance(answer, Kept)
        }
        await copy_letters(
            [as_kept(burials[held].letter, answer) for held, answer in kept.items()],
            broker=self._broker,
            policy=policy,
            keys=self._keys,
            observe=self._observe,
        )
        return kept

    async def _reply(self, ended: Sequence[Finished], policy: DLQPolicy, now: datetime) -> None:
        """Send the bad news, now that it is certain."""
        for finished in ended:
            delivery, failure = finished.held.delivery, finished.failure
            if delivery.message.reply_to is None or failure is None:
                continue
            news = worded(
                policy, delivery, finished.decision, failure, id=self._dice.new_id(), now=now
            )
            await send_reply(news, delivery, broker=self._broker, observe=self._observe)

    async def _finish(self, claims: Sequence[LedgerClaim], ended: Sequence[Finished]) -> None:
        """Say in the ledger what became of the keys of those that have ended."""
        states = {
            ledger_key(f.held.delivery.mailbox, f.held.delivery): ledger_state(f.decision)
            for f in ended
        }
        outcomes = [(c, states[c.key]) for c in claims if c.key in states]
        if outcomes and self._ledger is not None:
            await self._ledger.finish(outcomes, ttl=LEDGER_TTL)

    async def _fail_replays(self, failed: Sequence[Finished]) -> None:
        """Tell the letters whose copies these are: no letter comes back for them."""
        outcomes = [
            ReplaySettled(lineage.letter_id, lineage.generation, Outcome.FAILED)
            for finished in failed
            if (lineage := finished.held.delivery.message.lineage) is not None
        ]
        if outcomes:
            await self._letters.settle_replays(outcomes)

    async def _unhandled(
        self, mailbox: str, doomed: Sequence[Delivery]
    ) -> tuple[Sequence[Delivery], Sequence[LedgerClaim]]:
        """
        Return what the ledger does not say was handled, with the claims on its keys.

        A worker that was too slow for its lease may have done the work, or do it
        still: from now on it can no longer say so.
        """
        if self._ledger is None:
            return doomed, ()
        keys = [ledger_key(mailbox, delivery) for delivery in doomed]
        states = await self._ledger.look(keys)
        known = [key for key, state in zip(keys, states, strict=True) if state]
        if not known:
            return doomed, ()
        claims = await self._ledger.begin(known, lease=LEDGER_LEASE)
        done = {c.key for c in claims if c.state is LedgerState.PROCESSED and not c.conflict}
        handled = [d for d, key in zip(doomed, keys, strict=True) if key in done]
        if handled:
            await self._broker.source(mailbox).settle(
                [Acked(delivery, Fate.DUPLICATE) for delivery in handled]
            )
        left = [d for d, key in zip(doomed, keys, strict=True) if key not in done]
        return left, [claim for claim in claims if claim.mine]
