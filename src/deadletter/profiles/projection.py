"""Letters from the records of other systems."""

from collections.abc import Callable
from datetime import datetime
from typing import ParamSpec, TypeVar

import msgspec

from deadletter.core.attempts import Attempt, append
from deadletter.core.burial import wish_of
from deadletter.core.errors import Malformed
from deadletter.core.failure import Failure, Reason
from deadletter.core.failure.fingerprint import fingerprint
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message

P = ParamSpec("P")
T = TypeVar("T")


def taken(
    message: Message,
    failure: Failure,
    *,
    source: str,
    reason: Reason,
    attempts: int,
    dead_at: datetime,
    story: list[Attempt] | None = None,
    position: str | None = None,
    first_received_at: datetime | None = None,
    consumer: str = "",
    trace_id: str | None = None,
    retry_wish: bool | None = None,
) -> DeadLetter:
    """Return the letter, with the id that our own worker would have given it."""
    head = LetterHead(
        id=letter_id(source, "", message.id),
        source=source,
        message_id=message.id,
        key=message.key,
        business_key=message.idempotency_key,
        reason=reason,
        reason_text=failure.text,
        trouble=failure.trouble,
        code=failure.code,
        error_type=failure.error_type,
        error_text=failure.text,
        fingerprint=fingerprint(source, failure),
        attempts=attempts,
        first_failed_at=dead_at,
        dead_at=dead_at,
        consumer=consumer,
        trace_id=trace_id,
        size=len(message.body),
    )
    history = ""
    for attempt in story or ():
        history = append(history, attempt)
    return DeadLetter(
        head=head,
        message=message,
        history=history,
        position=position,
        first_received_at=first_received_at,
        retry_wish=wish_of(message) if retry_wish is None else retry_wish,
    )


def understood(what: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `read`. Raises Malformed if it cannot read the value."""
    try:
        return read(*args, **kwargs)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Malformed(f"invalid data, expected {what}: {error}") from error


# Dead letters in the shapes of other systems: one module each, `export` and `import_`.
#
# relayer      a status update of a transaction
# pipeline     `DlqMessage`, as the protobuf has it
# lease_queue  a storage item of a queue server
# mailbox      the dead letter of an agent's mailbox
# courier      the JSON of a courier gateway's dead-letter queue
#
# What a shape has no room for is lost on the way through it; what it carries comes
# back as it was, bodies to the byte.
