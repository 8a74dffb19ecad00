"""
Idempotency: the same key is worked once.

Claims are asked for and finished a batch at a time, like everything else; the
ledger knows of success before the broker does, so that a crash in between is a
duplicate we recognise and not a second run.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from deadletter.core.failure import Ack, Bury, Continue, Decision, Fail, Retry
from deadletter.core.ids import body_digest
from deadletter.core.message import Delivery
from deadletter.core.policy import id_conflict
from deadletter.ports import Fate, Ledger, LedgerClaim, LedgerKey, LedgerState

from .availability import Availability
from .deliveries import ClaimedDelivery
from .registration import KeyOf

BUSY_PAUSE = 5.0  # seconds until a key that somebody else is working on is tried again


class Once:
    """Claims keys for deliveries and records how their work ended."""

    def __init__(
        self,
        ledger: Ledger,
        mailbox: str,
        *,
        lease: float,
        ttl: float,
        bodies_may_differ: bool = False,
    ) -> None:
        self._ledger = ledger
        self._mailbox = mailbox
        self._lease = lease
        self._ttl = ttl
        self._bodies_may_differ = bodies_may_differ
        self._claims: dict[ClaimedDelivery, LedgerClaim] = {}

    async def start(
        self,
        batch: Sequence[ClaimedDelivery],
        availability: Availability,
        *,
        run: Callable[[Sequence[ClaimedDelivery]], None],
        skip: Callable[[ClaimedDelivery, Decision, Fate], None],
    ) -> None:
        """Claim the keys of a batch and run what is ours to run."""
        keys = self._keys([held.delivery for held in batch])
        claims = await availability.retry_until_available(
            "ledger", lambda: self._ledger.begin(keys, lease=self._lease)
        )
        mine = []
        for held, claim in zip(batch, claims, strict=True):
            if claim.mine:
                self._claims[held] = claim
                mine.append(held)
            elif claim.state is LedgerState.PROCESSING:
                skip(held, Retry(BUSY_PAUSE, charged=False), Fate.DUPLICATE)
            elif claim.conflict:
                # Not the message that was handled: nobody has this body but we.
                skip(held, id_conflict(held.delivery.message), Fate.BURIED)
            else:
                # Or it is in the office, and a replayed copy of it was faster.
                skip(held, Ack("handled before"), Fate.DUPLICATE)
        run(mine)

    async def finish(
        self, ended: Sequence[tuple[ClaimedDelivery, Decision]], availability: Availability
    ) -> None:
        """Record how the work ended, before the broker forgets the messages."""
        outcomes = [
            (claim, ledger_state(decision))
            for held, decision in ended
            if (claim := self._claims.get(held)) is not None
        ]
        if not outcomes:
            return
        await availability.retry_until_available(
            "ledger", lambda: self._ledger.finish(outcomes, ttl=self._ttl)
        )
        for held, _ in ended:
            self.drop(held)

    async def handled(
        self, deliveries: Sequence[Delivery], availability: Availability
    ) -> list[Delivery]:
        """Return the deliveries whose key has been processed by any worker."""
        keys = self._keys(deliveries)
        states = await availability.retry_until_available("ledger", lambda: self._ledger.look(keys))
        return [
            delivery
            for delivery, state in zip(deliveries, states, strict=True)
            if state is LedgerState.PROCESSED
        ]

    def _keys(self, deliveries: Sequence[Delivery]) -> list[LedgerKey]:
        by_body = not self._bodies_may_differ
        return [ledger_key(self._mailbox, one, by_body=by_body) for one in deliveries]

    def drop(self, held: ClaimedDelivery) -> None:
        """Let go of a claim whose delivery is somebody else's by now."""
        self._claims.pop(held, None)


def keyed(delivery: Delivery, key_of: KeyOf) -> Delivery:
    """
    Return the delivery with the key that its message holds, unless it came with one.

    Raises whatever `key_of` raises: without its key a message could be worked twice.
    """
    message = delivery.message
    if message.idempotency_key is not None or delivery.unreadable:
        return delivery
    key = key_of(message)
    if not key:
        return delivery
    if not isinstance(key, str):
        raise TypeError(f"returned {key!r}, which is no key: return a text or None")
    return replace(delivery, message=replace(message, idempotency_key=key))


def ledger_key(mailbox: str, delivery: Delivery, *, by_body: bool = True) -> LedgerKey:
    """Return what must be done once for a delivery; with its body, unless any will do."""
    message = delivery.message
    return LedgerKey.of_message(
        mailbox,
        message.idempotency_key or message.id,
        message.generation,
        message.id,
        body_digest(message.body) if by_body else None,
    )


def ledger_state(decision: Decision) -> LedgerState:
    """Return what the ledger says of work that ended so."""
    match decision:
        case Ack() | Continue():
            return LedgerState.PROCESSED
        case Bury():
            return LedgerState.DEAD_LETTERED
        case Retry() | Fail():
            return LedgerState.FAILED
