"""A letter to look at: everything about it, its contents bounded and masked."""

from datetime import datetime

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.dialects import origin_of, unmarked
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


class OriginView(Struct, frozen=True, kw_only=True):
    """Where a drained letter was found, and what was written about it there."""

    kind: str
    place: str
    dialect: str  # empty: nobody understands what is written there
    claim: str = ""  # the mailbox that only its headers name
    fields: dict[str, str] = {}  # task, arguments, routing …, secrets masked


class LetterView(Struct, frozen=True, kw_only=True):
    """One letter, all of its attempts, and its message with secrets masked."""

    head: LetterHead
    message: MessageView
    origin: OriginView | None = None  # None: it was not drained
    attempts: tuple[Attempt, ...]
    position: str | None
    first_received_at: datetime | None
    frame: str
    route: str | None
    retry_wish: bool | None
    original: MessageView | None = None  # what died, if it was edited since
    differences: tuple[Difference, ...] = ()  # ...and what was changed
    drained_from: str | None = None  # a server of others; None: it died here


def view(
    letter: DeadLetter, *, reveal: bool = False, capture: bool = False
) -> LetterView:
    """
    A letter as whoever may look at it sees it; `reveal` masks nothing.

    With `capture` the header `dlq-found` of a drained letter is shown as well.
    """
    original, origin = letter.original, origin_of(letter.message)
    return LetterView(
        head=letter.head,
        message=view_message(letter.message, reveal=reveal, capture=capture),
        origin=_origin(letter.message),
        attempts=tuple(letter.story()),
        position=letter.position,
        first_received_at=letter.first_received_at,
        frame=letter.frame,
        route=letter.route,
        retry_wish=letter.retry_wish,
        original=None
        if original is None
        else view_message(original, reveal=reveal, capture=capture),
        differences=differences(letter.as_it_died, letter.message, reveal=reveal),
        drained_from=None if origin is None else origin.server,
    )


def view_message(
    message: Message, *, reveal: bool = False, capture: bool = False
) -> MessageView:
    """A message as whoever may look at it sees it."""
    shown = message if capture else unmarked(message)
    return MessageView(
        id=message.id,
        sent_at=message.sent_at,
        content_type=message.content_type,
        key=message.key,
        expires_at=message.expires_at,
        reply_to=message.reply_to,
        idempotency_key=message.idempotency_key,
        traceparent=message.traceparent,
        headers=tuple(header_lines(shown.headers, reveal=reveal)),
        preview="\n".join(preview(message.body, reveal=reveal)),
    )


def _origin(message: Message) -> OriginView | None:
    found = origin_of(message)
    if found is None:
        return None
    return OriginView(
        kind=found.kind,
        place=found.place,
        dialect=found.dialect,
        claim=found.claim,
        fields=found.said,
    )
