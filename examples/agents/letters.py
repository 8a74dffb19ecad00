"""The dead letter, as the handler of a dead-letter mailbox knows it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from deadletter.core.letter import DeadLetter as Kept
from deadletter.profiles.mailbox import export

from .bodies import Decode, fits

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class DeadLetter(Generic[T]):
    """A message that could not be processed, and why."""

    message_id: str
    body: T  # as bytes, if it never was what its loop asks for
    source_mailbox: str
    delivery_count: int
    last_error: str
    last_error_type: str
    dead_lettered_at: datetime
    first_received_at: datetime
    request_id: UUID | None = None
    reply_to: str | None = None
    trace_id: str | None = None


def dead_letter(kept: Kept, decode: Decode) -> DeadLetter[Any]:
    """The letter that the office keeps, in the words of this package."""
    told = export(kept)
    return DeadLetter(
        message_id=told.message_id,
        body=fits(decode, told.body),
        source_mailbox=told.source_mailbox,
        delivery_count=told.delivery_count,
        last_error=told.last_error,
        last_error_type=told.last_error_type,
        dead_lettered_at=told.dead_lettered_at,
        first_received_at=told.first_received_at,
        request_id=told.request_id,
        reply_to=told.reply_to,
        trace_id=told.trace_id,
    )
