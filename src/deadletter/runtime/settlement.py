"""
Settling, in batches, without timers.

What finishes while a flush is under way goes into the next one: no added latency
when idle, large batches under load. The order within a flush is the promise:

    still ours, and letter kept  ->  copies, ledger, replies  ->  acked

A crash between any two steps repeats them; none of them minds.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from deadletter.core.attempts import last_number
from deadletter.core.campaign import Outcome
from deadletter.core.errors import BackendError
from deadletter.core.events import HandlerNoted, Observer, OutOfReach
from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Retry
from deadletter.core.failure.capture import capture
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import OPEN, By, DeadLetter, State
from deadletter.core.message import Delivery
from deadletter.core.policy import DLQPolicy
from deadletter.core.signing import Keys
from deadletter.ports import (
    PROCESS_KEYS,
    Acked,
    AtomicBurial,
    Broker,
    Fate,
    Kept,
    LetterStore,
    Move,
    Note,
    Released,
    ReplaySettled,
    Settlement,
    Source,
    TakesNotes,
)

from .availability import Availability, RuntimeContext
from .deliveries import ClaimedDelivery, HandlerNote
from .idempotency import Once
from .outcomes import (
    Finished,
    Unkept,
    as_kept,
    burial_of,
    bury,
    copy_letters,
    is_left_to_broker,
    keeper,
    report,
    send_reply,
    worded,
)

_MOST: Final = 10_000  # that are not written yet; more are dropped


class Notes:
    """Gathers notes from handlers in tasks, threads and processes."""

    def __init__(self, mailbox: str, broker: Broker, observe: Observer) -> None:
        self._mailbox = mailbox
        self._takes = broker if isinstance(broker, TakesNotes) else None
        self._observe = observe
        self._waiting: list[Note] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def begin(self, wake: asyncio.Event) -> None:
        """Gather notes on the running loop; `wake` is set when there are any."""
        self._loop, self._wake = asyncio.get_running_loop(), wake

    def add(self, held: ClaimedDelivery, noted: HandlerNote) -> None:
        """Tell of a note, and have it written; from any thread."""
        loop = self._loop
        if loop is None:
            return
        if loop is _running_loop():
            self._add(held, noted)
            return
        with suppress(RuntimeError):  # the loop has ended, and all work with it
            loop.call_soon_threadsafe(self._add, held, noted)

    async def write(self) -> None:
        """Write them, once: they are for people, and must not hold anything up."""
        notes, self._waiting = self._waiting, []
        if notes and self._takes is not None:
            with suppress(BackendError):
                await self._takes.note(self._mailbox, notes)

    def _add(self, held: ClaimedDelivery, noted: HandlerNote) -> None:
        delivery = held.delivery
        self._observe(
            HandlerNoted(
                mailbox=self._mailbox,
                message_id=delivery.message.id,
                attempt=delivery.attempt,
                progress=(noted.progress or b"").decode(),
                text=noted.line or "",
            )
        )
        if self._takes is not None and len(self._waiting) < _MOST:
            self._waiting.append(Note(delivery, noted.progress, noted.line))
            self._wake.set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# A worker may die, or freeze, between keeping a letter and forgetting its message.
# The message is delivered again, and may work this time: then the letter has nobody
# left to wait for, and is closed. One message, one fate.

BY: Final = By("worker", "its message was delivered again and handled")


def may_have_letter(delivery: Delivery) -> bool:
    """Return whether a letter may wait for it: it is a copy, or a worker died over it."""
    if delivery.message.lineage is not None:
        return True
    return last_number(delivery.history) < delivery.attempt - 1


async def close_stale_letters(letters: LetterStore, handled: Sequence[Delivery]) -> None:
    """Close the letters of these deliveries, where there are any."""
    by_id = {key: delivery.message for delivery in handled for key in _ids(delivery)}
    found = await letters.get(list(by_id)) if by_id else ()
    needless = tuple(
        letter.id
        for letter in found
        if letter.head.state in OPEN
        and letter.head.replays == by_id[letter.id].generation
        and by_id[letter.id].body in (letter.message.body, letter.as_it_died.body)
    )
    if needless:
        await letters.move(Move(ids=needless, old=OPEN, new=State.CLOSED), BY)


def _ids(delivery: Delivery) -> Iterator[str]:
    """Under which its letter may have been kept; the last if its id was reused."""
    message, place = delivery.message, (delivery.mailbox, delivery.partition)
    if message.lineage is not None:
        yield message.lineage.letter_id
    yield letter_id(*place, message.id)
    yield letter_id(*place, message.id, body_digest(message.body))


class Settler:
    """Carries out decisions, many at a time, in the one safe order."""

    def __init__(
        self,
        *,
        source: Source,
        broker: Broker,
        letters: LetterStore,
        atomic_burial: AtomicBurial | None,
        policy: DLQPolicy,
        once: Once | None,
        availability: Availability,
        context: RuntimeContext,
        on_settled: Callable[[ClaimedDelivery], None],
        lease: float,
        consumer: str,
        version: str,
        keys: Keys = PROCESS_KEYS,
    ) -> None:
        self._source = source
        self._broker = broker
        self._letters = letters
        self._policy = policy
        self._once = once
        self._availability = availability
        self._clock = context.clock
        self._dice = context.dice
        self._observe = context.observe
        self._on_settled = on_settled
        self._lease = lease
        self._consumer = consumer
        self._version = version
        self._keys = keys
        self._keep = keeper(source, letters, atomic_burial, lease=lease, patience=availability)
        self._waiting: list[Finished] = []
        self._notes = Notes(source.mailbox, broker, context.observe)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, finished: Finished) -> None:
        """Have it settled with the next flush."""
        if not self._waiting:
            self._idle.clear()
            self._wake.set()
        self._waiting.append(finished)

    def note(self, held: ClaimedDelivery, noted: HandlerNote) -> None:
        """Have a note of a running handler written before it is settled."""
        self._notes.add(held, noted)

    async def run(self) -> None:
        """Flush whatever is waiting, until cancelled."""
        self._notes.begin(self._wake)
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            await self._notes.write()
            if not batch:
                continue
            await self._carry_out(batch)
            if not self._waiting:
                self._idle.set()

    async def drained(self) -> None:
        """Wait until everything added so far is settled."""
        await self._idle.wait()

    async def _carry_out(self, batch: list[Finished]) -> None:
        """Flush; what cannot be settled at all must not hold up the others."""
        try:
            await self._flush(batch)
        except asyncio.CancelledError:
            self._waiting[:0] = batch  # for whoever runs us again
            self._wake.set()
            raise
        except Exception as error:  # noqa: BLE001 -- no backend's trouble: a mistake
            if len(batch) > 1:
                for finished in batch:
                    await self._carry_out([finished])
            else:
                self._let_go(batch[0].held, error)

    def _let_go(self, held: ClaimedDelivery, error: Exception) -> None:
        """Leave a delivery to its lease: it comes back when that runs out."""
        self._observe(
            OutOfReach(
                mailbox=self._source.mailbox,
                what=f"letter or answer of message {held.delivery.message.id!r}",
                text=capture(error, self._policy.classifier).text,
                tries=1,
            )
        )
        if self._once is not None:
            self._once.drop(held)
        self._on_settled(held)

    async def _flush(self, batch: list[Finished]) -> None:
        careful = [f for f in batch if _needs_care(f)]
        kept: dict[int, Kept] = {}
        lost: set[int] = set()
        if careful:
            kept, lost = await self._bury(careful)
            lost |= await self._lost(careful)
            careful = [f for f in careful if id(f) not in lost]
            await self._confirm(careful)
            await self._reply([f for f in careful if not _is_unkept(f, kept)])
        going = [f for f in batch if id(f) not in lost] if lost else batch
        redeemed = [f.held.delivery for f in going if _is_redeemed(f)]
        await self._redeem(redeemed)
        if self._once is not None:
            ended = [(f.held, f.decision) for f in going]
            await self._once.finish(ended, self._availability)
        settlements = [self._settlement(f, kept) for f in going]
        ours = await self._availability.retry_until_available(
            "broker", lambda: self._source.settle(settlements)
        )
        late = [f for f, mine in zip(going, ours, strict=True) if not mine]
        if late:
            await self._redeem_late(late, kept)
        for finished, applied in zip(going, ours, strict=True):
            report(
                finished,
                kept.get(id(finished)),
                self._observe,
                applied=applied,
                consumer=self._consumer,
            )
        for finished in batch:
            if id(finished) in lost:
                report(finished, None, self._observe, applied=False)
                if self._once is not None:
                    self._once.drop(finished.held)
            self._on_settled(finished.held)

    async def _redeem(self, handled: Sequence[Delivery]) -> None:
        """Close the letters of what was handled after all."""
        if handled:
            await self._availability.retry_until_available(
                "office", lambda: close_stale_letters(self._letters, handled)
            )

    async def _redeem_late(self, late: Sequence[Finished], kept: dict[int, Kept]) -> None:
        """
        Close letters of what was no longer ours when we settled it.

        We may have handled what somebody else has buried by now, or buried what
        somebody else has handled.
        """
        handled = [f.held.delivery for f in late if _is_handled(f)]
        buried = [f.held.delivery for f in late if id(f) in kept]
        if buried and self._once is not None:
            handled += await self._once.handled(buried, self._availability)
        await self._redeem(handled)

    async def _lost(self, careful: Sequence[Finished]) -> set[int]:
        """Return those whose lease is gone: they may no longer confirm or reply."""
        asked = [f for f in careful if not isinstance(f.decision, Bury)]
        if not asked:
            return set()
        deliveries = [f.held.delivery for f in asked]
        ours = await self._availability.retry_until_available(
            "broker", lambda: self._source.extend(deliveries, lease=self._lease)
        )
        return {id(f) for f, mine in zip(asked, ours, strict=True) if not mine}

    async def _bury(self, careful: Sequence[Finished]) -> tuple[dict[int, Kept], set[int]]:
        """Keep the letters of those given up; what was kept and what was not ours."""
        now = self._clock.now()
        doomed = [f for f in careful if isinstance(f.decision, Bury)]
        burials = [
            burial_of(f, now=now, consumer=self._consumer, version=self._version) for f in doomed
        ]
        kept: dict[int, Kept] = {}
        lost: set[int] = set()
        copied: list[DeadLetter] = []
        answers = await bury(self._keep, burials, self._observe)
        for finished, burial, answer in zip(doomed, burials, answers, strict=True):
            if isinstance(answer, Kept):
                kept[id(finished)] = answer
                if not is_left_to_broker(finished.held.delivery, self._policy, burial.letter.route):
                    copied.append(as_kept(burial.letter, answer))
            elif answer is Unkept.LOST:
                lost.add(id(finished))
        await copy_letters(
            copied,
            broker=self._broker,
            policy=self._policy,
            keys=self._keys,
            observe=self._observe,
            availability=self._availability,
        )
        return kept, lost

    async def _confirm(self, careful: Sequence[Finished]) -> None:
        outcomes = [
            ReplaySettled(lineage.letter_id, lineage.generation, _outcome(f.decision))
            for f in careful
            if (lineage := f.held.delivery.message.lineage) is not None
            and not isinstance(f.decision, Retry | Bury)
        ]
        if outcomes:
            await self._availability.retry_until_available(
                "office", lambda: self._letters.settle_replays(outcomes)
            )

    async def _reply(self, careful: Sequence[Finished]) -> None:
        now = self._clock.now()
        for finished in careful:
            message = finished.held.delivery.message
            if message.reply_to is None:
                continue
            reply = finished.reply
            if finished.failure is not None and not isinstance(finished.decision, Retry):
                reply = worded(
                    self._policy,
                    finished.held.delivery,
                    finished.decision,
                    finished.failure,
                    id=self._dice.new_id(),
                    now=now,
                )
            if reply is None:
                continue
            await send_reply(
                reply, finished.held.delivery, broker=self._broker, observe=self._observe
            )

    def _settlement(self, finished: Finished, kept: dict[int, Kept]) -> Settlement:
        delivery = finished.held.delivery
        match finished.decision:
            case Retry(delay, charged):
                return Released(delivery, delay, finished.history, charged)
            case Bury() if _is_unkept(finished, kept):
                # The office would not take it: it stays where it is, uncharged.
                return Released(delivery, self._lease, None, charged=False)
            case Bury(_, _, route) if is_left_to_broker(delivery, self._policy, route):
                return Released(delivery, 0.0, finished.history)
            case Bury():
                return Acked(delivery, Fate.BURIED, history=finished.history)
            case Fail():
                return Acked(delivery, Fate.FAILED, history=finished.history)
            case Continue():
                return Acked(delivery, Fate.CONTINUED)
            case Ack():
                return Acked(delivery, finished.fate, finished.result)


def _needs_care(finished: Finished) -> bool:
    """Return whether something must be written elsewhere before the delivery is settled."""
    if isinstance(finished.decision, Bury):
        return True
    message = finished.held.delivery.message
    if isinstance(finished.decision, Retry):
        return False
    return (
        finished.reply is not None
        or message.lineage is not None
        or (message.reply_to is not None and finished.failure is not None)
    )


def _is_unkept(finished: Finished, kept: dict[int, Kept]) -> bool:
    """Return whether it is to be buried, and the office would not take it."""
    return isinstance(finished.decision, Bury) and id(finished) not in kept


def _is_handled(finished: Finished) -> bool:
    return isinstance(finished.decision, Ack | Continue)


def _is_redeemed(finished: Finished) -> bool:
    """Return whether it is handled now, and may have been buried by a worker that died."""
    return _is_handled(finished) and may_have_letter(finished.held.delivery)


def _outcome(decision: Decision) -> Outcome:
    return Outcome.FAILED if isinstance(decision, Fail) else Outcome.CONFIRMED
