"""A letter made of what another system kept of it."""

from collections.abc import Callable
from datetime import datetime
from typing import ParamSpec, TypeVar

import msgspec

from ..attempts import Attempt, append
from ..burial import wish_of
from ..decision import Reason
from ..errors import Malformed
from ..failure import Failure
from ..fingerprint import fingerprint
from ..ids import letter_id
from ..letter import DeadLetter, LetterHead
from ..message import Message

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
    """The letter; its id is the one our own worker would have given it."""
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
    """What `read` makes of a foreign value; what it cannot read is Malformed."""
    try:
        return read(*args, **kwargs)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise Malformed(f"This is not {what}: {error}") from error
