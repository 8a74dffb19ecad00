"""
Agents and model providers: rules by the name of the error.

Ambiguous errors are unknown: a provider's error may be temporary or not, a body may need a
newer version, a resource its deployment.
"""

import builtins
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.failure.classify import Rule
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message

from .projection import taken

AGENT: Final = (
    Rule(
        id="agent-retriable",
        trouble=Trouble.TRANSIENT,
        names=(
            "MailboxConnectionError",
            "RateLimitError",
            "TimeoutError",
            "VisibilityExpansionRequired",
        ),
    ),
    Rule(
        id="agent-not-retriable",
        trouble=Trouble.PERMANENT,
        names=(
            "ValidationError",
            "ContentPolicyViolation",
            "AuthenticationError",
            "QuotaExceededError",
        ),
    ),
    Rule(
        id="agent-ambiguous",
        trouble=Trouble.UNKNOWN,
        names=("ProviderError", "SerializationError", "ResourceNotFoundError"),
    ),
)


# The dead letter of an agent's mailbox.


class MailboxDeadLetter(Struct, frozen=True, kw_only=True):
    """The argument of a mailbox's DLQ handler."""

    message_id: str
    body: bytes
    source_mailbox: str
    delivery_count: int
    last_error: str
    last_error_type: str  # fully qualified
    dead_lettered_at: datetime
    first_received_at: datetime
    request_id: UUID | None = None
    reply_to: str | None = None
    trace_id: str | None = None


def export(letter: DeadLetter) -> MailboxDeadLetter:
    """Return the letter in the form that its handler knows."""
    head, message = letter.head, letter.message
    return MailboxDeadLetter(
        message_id=head.message_id,
        body=message.body,
        source_mailbox=head.source,
        delivery_count=head.attempts,
        last_error=head.error_text,
        last_error_type=qualified(head.error_type),
        dead_lettered_at=head.dead_at,
        first_received_at=letter.first_received_at or message.sent_at,
        request_id=_uuid(head.business_key),
        reply_to=message.reply_to,
        trace_id=head.trace_id,
    )


def import_(letter: MailboxDeadLetter, *, trouble: Trouble = Trouble.UNKNOWN) -> DeadLetter:
    """Return the letter of a mailbox; the form does not include the kind of trouble."""
    message = Message(
        id=letter.message_id,
        body=letter.body,
        sent_at=letter.first_received_at,
        reply_to=letter.reply_to,
        idempotency_key=None if letter.request_id is None else str(letter.request_id),
    )
    return taken(
        message,
        Failure(
            trouble=trouble, code="", error_type=letter.last_error_type, text=letter.last_error
        ),
        source=letter.source_mailbox,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        attempts=letter.delivery_count,
        dead_at=letter.dead_lettered_at,
        first_received_at=letter.first_received_at,
        trace_id=letter.trace_id,
    )


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:  # a business key need not be one
        return None


def qualified(error_type: str) -> str:
    """Return the name with its module: tracebacks omit `builtins`."""
    known = vars(builtins).get(error_type)
    is_error = isinstance(known, type) and issubclass(known, BaseException)
    return f"builtins.{error_type}" if is_error else error_type
