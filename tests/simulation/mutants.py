"""Defects planted on purpose, each the kind of thing somebody might write."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace
from pytest import MonkeyPatch  # noqa: PT013 -- this is no test file

from deadletter.core import letter_filing as keeping
from deadletter.core.errors import BackendError
from deadletter.core.failure import Ack, Bury, Failure, Reason, Retry
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.ports import Burial, Fate, Kept, LedgerState, LetterStore, Settlement, Source
from deadletter.runtime import outcomes as burying
from deadletter.runtime import settlement as settle
from deadletter.runtime.attempt import Attempts
from deadletter.runtime.availability import Availability
from deadletter.runtime.brake_gate import BrakeGate
from deadletter.runtime.deliveries import ClaimedDelivery, ExclusiveGate, LeaseKeeper
from deadletter.runtime.idempotency import Once, ledger_key
from deadletter.runtime.outcomes import Finished, Keep
from deadletter.runtime.settlement import Settler
from deadletter.runtime.worker import Worker
from deadletter.stores.memory.queue import MemoryMailbox, Row

Mutant = Callable[[MonkeyPatch], None]


def ack_before_keep(patch: MonkeyPatch) -> None:
    async def flush(self: Settler, batch: list[Finished]) -> None:
        kept = {id(f): Kept("") for f in batch}
        settlements = [self._settlement(f, kept) for f in batch]
        await self._availability.retry_until_available(
            "broker", lambda: self._source.settle(settlements)
        )
        await self._bury([f for f in batch if isinstance(f.decision, Bury)])
        for finished in batch:
            self._on_settled(finished.held)

    patch.setattr(Settler, "_flush", flush)


def keep_error_swallowed(patch: MonkeyPatch) -> None:
    def keeper(source: Source, letters: LetterStore, *_: Any, **__: Any) -> Keep:
        async def keep(burials: Sequence[Burial]) -> Sequence[Kept]:
            try:
                return await letters.keep([burial.letter for burial in burials])
            except BackendError:
                return [Kept(burial.letter.id) for burial in burials]

        return keep

    patch.setattr(settle, "keeper", keeper)


def random_letter_ids(patch: MonkeyPatch) -> None:
    numbers = iter(range(1_000_000))
    patch.setattr(keeping, "letter_id", lambda *_: f"letter-{next(numbers)}")


def attempts_in_memory(patch: MonkeyPatch) -> None:
    def delivery(self: Row, mailbox: str) -> Delivery:
        return replace(original(self, mailbox), attempt=1, spared=0, history="")

    original = Row.delivery
    patch.setattr(Row, "delivery", delivery)


def no_fencing(patch: MonkeyPatch) -> None:
    def ours(self: MemoryMailbox, delivery: Delivery, now: object) -> Row | None:
        return self.rows.get(delivery.receipt[0])

    patch.setattr(MemoryMailbox, "ours", ours)


def no_renewal(patch: MonkeyPatch) -> None:
    async def extend(self: LeaseKeeper, now: float) -> None:
        self._extended = now

    patch.setattr(LeaseKeeper, "_extend", extend)


def brake_burns_attempts(patch: MonkeyPatch) -> None:
    def failed(self: BrakeGate, *args: Any) -> bool:
        original(self, *args)
        return False

    original = BrakeGate.failed
    patch.setattr(BrakeGate, "failed", failed)


def innocents_charged(patch: MonkeyPatch) -> None:
    def claim(self: Row, token: int, until: Any, now: Any, *, alone: bool) -> None:
        original(self, token, until, now, alone=True)

    original = Row.claim
    patch.setattr(Row, "claim", claim)


def suspects_in_company(patch: MonkeyPatch) -> None:
    @asynccontextmanager
    async def alone(self: ExclusiveGate, *_: Any, **__: Any) -> AsyncIterator[bool]:
        yield True

    patch.setattr(ExclusiveGate, "alone", alone)


def acks_what_it_hands_back(patch: MonkeyPatch) -> None:
    def hand_back(self: Attempts, held: ClaimedDelivery) -> None:
        self._settler.add(Finished(held=held, decision=Ack(), history=None))

    patch.setattr(Attempts, "hand_back", hand_back)


def no_time_limit(patch: MonkeyPatch) -> None:
    patch.setattr(Attempts, "overdue", lambda self, held: None)


def late_letters_left_open(patch: MonkeyPatch) -> None:
    async def redeem_late(self: Settler, *_: Any) -> None:
        return None

    patch.setattr(Settler, "_redeem_late", redeem_late)


def letters_left_open(patch: MonkeyPatch) -> None:
    patch.setattr(settle, "may_have_letter", lambda delivery: False)


def body_decoded_on_the_way(patch: MonkeyPatch) -> None:
    def burial(delivery: Delivery, *args: Any, **more: Any) -> DeadLetter:
        body = delivery.message.body.decode("utf-8", "replace").encode()
        message = replace(delivery.message, body=body)
        return original(replace(delivery, message=message), *args, **more)

    original = burying.letter_of
    patch.setattr(burying, "letter_of", burial)


def overtaken_original_waits(patch: MonkeyPatch) -> None:
    async def start(
        self: Once, batch: Any, availability: Availability, *, run: Any, skip: Any
    ) -> None:
        keys = [ledger_key(self._mailbox, held.delivery) for held in batch]
        claims = await availability.retry_until_available(
            "ledger", partial(self._ledger.begin, keys, lease=60.0)
        )
        for held, claim in zip(batch, claims, strict=True):
            if claim.mine:
                self._claims[held] = claim
                run(held)
            elif claim.state is LedgerState.PROCESSED:
                skip(held, Ack(), Fate.DUPLICATE)
            else:
                skip(held, Retry(5.0, charged=False), Fate.DUPLICATE)

    patch.setattr(Once, "start", start)


def replays_never_confirmed(patch: MonkeyPatch) -> None:
    async def confirm(self: Settler, careful: Sequence[Finished]) -> None:
        return None

    patch.setattr(Settler, "_confirm", confirm)


def letter_of_another_message(patch: MonkeyPatch) -> None:
    def burial(delivery: Delivery, *args: Any, **more: Any) -> DeadLetter:
        message = replace(delivery.message, id=f"{delivery.message.id}?")
        return original(replace(delivery, message=message), *args, **more)

    original = burying.letter_of
    patch.setattr(burying, "letter_of", burial)


def wrong_reason(patch: MonkeyPatch) -> None:
    def burial(delivery: Delivery, failure: Failure, bury: Bury, **more: Any) -> DeadLetter:
        return original(delivery, failure, Bury(Reason.OPERATOR, ""), **more)

    original = burying.letter_of
    patch.setattr(burying, "letter_of", burial)


def counts_twice(patch: MonkeyPatch) -> None:
    def settled(self: MemoryMailbox, settlement: Settlement, now: Any) -> bool:
        self.tally[Fate.HANDLED] += 1
        return original(self, settlement, now)

    original = MemoryMailbox.settle
    patch.setattr(MemoryMailbox, "settle", settled)


def dies_of_a_full_batch(patch: MonkeyPatch) -> None:
    def start(self: Worker, deliveries: Sequence[Delivery]) -> None:
        if len(deliveries) == 4:
            raise RuntimeError("four is too many")
        original(self, deliveries)

    original = Worker._start
    patch.setattr(Worker, "_start", start)
