"""A letter to look at: everything about it, its contents bounded and masked."""

from datetime import datetime

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message

from .diff import Difference, differences
from .preview import header_lines, preview


class MessageView(Struct, frozen=True, kw_only=True):
    """A message with its secrets masked; `headers` and `preview` are made for eyes."""

    id: str
    sent_at: datetime
    content_type: str | None
    key: str | None
    expires_at: datetime | None
    reply_to: str | None
    idempotency_key: str | None
    traceparent: str | None
    headers: tuple[str, ...]
    preview: str


class LetterView(Struct, frozen=True, kw_only=True):
    """One letter, all of its attempts, and its message with secrets masked."""

    head: LetterHead
    message: MessageView
    attempts: tuple[Attempt, ...]
    position: str | None
    first_received_at: datetime | None
    frame: str
    route: str | None
    retry_wish: bool | None
    original: MessageView | None = None  # what died, if it was edited since
    differences: tuple[Difference, ...] = ()  # ...and what was changed


def view(letter: DeadLetter, *, reveal: bool = False) -> LetterView:
    """A letter as whoever may look at it sees it; `reveal` masks nothing."""
    original = letter.original
    return LetterView(
        head=letter.head,
        message=view_message(letter.message, reveal=reveal),
        attempts=tuple(letter.story()),
        position=letter.position,
        first_received_at=letter.first_received_at,
        frame=letter.frame,
        route=letter.route,
        retry_wish=letter.retry_wish,
        original=None if original is None else view_message(original, reveal=reveal),
        differences=differences(letter.as_it_died, letter.message, reveal=reveal),
    )


def view_message(message: Message, *, reveal: bool = False) -> MessageView:
    """A message as whoever may look at it sees it."""
    return MessageView(
        id=message.id,
        sent_at=message.sent_at,
        content_type=message.content_type,
        key=message.key,
        expires_at=message.expires_at,
        reply_to=message.reply_to,
        idempotency_key=message.idempotency_key,
        traceparent=message.traceparent,
        headers=tuple(header_lines(message.headers, reveal=reveal)),
        preview="\n".join(preview(message.body, reveal=reveal)),
    )
