"""The dead letter, as handlers of a dead-letter mailbox get it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from deadletter.core.letter import DeadLetter as Kept
from deadletter.profiles.mailbox import export

from .serialization import Decode, decode_or_bytes

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class DeadLetter(Generic[T]):
    """A message that could not be processed, with the context of its failure."""

    message_id: str
    body: T  # bytes if the body does not fit the type of the mailbox
    source_mailbox: str
    delivery_count: int
    last_error: str
    last_error_type: str  # module and qualified name
    dead_lettered_at: datetime
    first_received_at: datetime
    request_id: UUID | None = None
    reply_to: str | None = None
    trace_id: str | None = None


def to_dead_letter(kept: Kept, decode: Decode) -> DeadLetter[Any]:
    """Return a letter of the office in the form that handlers get."""
    exported = export(kept)
    return DeadLetter(
        message_id=exported.message_id,
        body=decode_or_bytes(decode, exported.body),
        source_mailbox=exported.source_mailbox,
        delivery_count=exported.delivery_count,
        last_error=exported.last_error,
        last_error_type=exported.last_error_type,
        dead_lettered_at=exported.dead_lettered_at,
        first_received_at=exported.first_received_at,
        request_id=exported.request_id,
        reply_to=exported.reply_to,
        trace_id=exported.trace_id,
    )
