"""From a delivery that is given up to the dead letter it becomes."""

from datetime import datetime
from functools import lru_cache
from typing import Final

from .attempts import Mark, ends
from .capture import TEXT_LIMIT
from .decision import Bury, Reason
from .failure import Failure
from .fingerprint import fingerprint
from .ids import letter_id
from .letter import DeadLetter, LetterHead
from .message import Delivery, Message, trace_id
from .redact import redact
from .text import cut, plain

RETRY_WISH: Final = "retry-on-failure"
"""The header by which a producer asks for replay: `true` or `false`."""

_LONGEST: Final = TEXT_LIMIT + 1_000  # a secret at the limit must be seen whole
_RUN: Final = frozenset({"failed", "continued"})  # outcomes of a handler that ran
_DECIDED_BEFORE: Final = frozenset(
    {Reason.WORKER_LOST, Reason.EXPIRED, Reason.ATTEMPTS_EXHAUSTED, Reason.ID_CONFLICT}
)


def burial(
    delivery: Delivery,
    failure: Failure,
    bury: Bury,
    *,
    history: str,
    now: datetime,
    consumer: str,
    version: str,
) -> DeadLetter:
    """
    The letter a delivery becomes.

    Its id is computed from where the message came from and its id alone, so
    whoever buries it, however often, buries the same letter; a replayed copy
    returns to the letter it was replayed from.
    """
    message = delivery.message
    first, last = ends(history)
    head = LetterHead(
        id=_id(delivery),
        source=delivery.mailbox,
        message_id=message.id,
        partition=delivery.partition,
        key=message.key,
        business_key=message.idempotency_key,
        reason=bury.reason,
        # A handler may have put anything into it, its message's content included.
        reason_text=_fit(bury.text[:_LONGEST]),
        trouble=failure.trouble,
        code=failure.code,
        error_type=failure.error_type,
        error_text=failure.text,
        fingerprint=fingerprint(delivery.mailbox, failure),
        attempts=_attempts(delivery, bury.reason, last),
        first_failed_at=now if first is None else first.at,
        dead_at=now,
        consumer=consumer,
        version=version,
        trace_id=trace_id(message.traceparent),
        replays=message.generation,
        conflict=bury.reason is Reason.ID_CONFLICT,
        size=len(message.body),
    )
    return DeadLetter(
        head=head,
        message=message,
        history=history,
        position=delivery.position,
        first_received_at=delivery.first_received_at,
        frame=failure.frame,
        route=bury.route,
        retry_wish=wish_of(message),
    )


@lru_cache(maxsize=256)  # mostly a policy's own words, the same each time
def _fit(text: str) -> str:
    return cut(redact(plain(text)), TEXT_LIMIT)


def _id(delivery: Delivery) -> str:
    message = delivery.message
    if message.lineage is not None:
        return message.lineage.letter_id
    return letter_id(delivery.mailbox, delivery.partition, message.id)


def _attempts(delivery: Delivery, reason: Reason, last: Mark | None) -> int:
    # The claim that found it expired or out of attempts was counted like any
    # other, but its handler did not run: that one is no attempt at the work.
    if reason not in _DECIDED_BEFORE:
        return delivery.charged
    ran = last and last.number >= delivery.attempt and last.outcome in _RUN
    return delivery.charged if ran else delivery.charged - 1


def wish_of(message: Message) -> bool | None:
    """Return whether the producer asked for replay on failure; None when it did not say."""
    if not message.headers:
        return None
    wish = (message.header(RETRY_WISH) or "").strip().lower()
    return {"true": True, "false": False}.get(wish)
