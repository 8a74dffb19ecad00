"""Views of a letter: its contents, bounded and masked, and its story."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.letter import AuditEntry, By, DeadLetter, LetterHead, State
from deadletter.core.message import Headers, Message
from deadletter.core.redact import MASK, is_secret_name, redact
from deadletter.core.replay_rules import OUT, is_out
from deadletter.core.text import clean
from deadletter.intake.dialects import origin_of, unmarked
from deadletter.ports import LetterStore

from .diff import Difference, differences
from .preflight import target_of
from .triage.json_layout import LineKind
from .triage.layout import BYTES_IN_ROW, Form, layout
from .verbs import verb_of

MOST_LINES: Final = 60
MOST_WIDTH: Final = 2_000  # characters of one line
_ROWS_SHOWN: Final = 16  # of bytes


def preview(body: bytes, *, reveal: bool = False) -> list[str]:
    """Return the first lines of a body, safe to show."""
    found = layout(body, reveal=reveal)
    if found.form is Form.HEX:
        lines = [str(line) for line in found.lines[:_ROWS_SHOWN]]
        left = found.size - _ROWS_SHOWN * BYTES_IN_ROW
        return [*lines, f"… {left:,} more bytes"] if left > 0 else lines
    lines = []
    for line in found.lines:
        if line.kind is LineKind.CONTINUED:
            lines[-1] = f"{lines[-1].removesuffix('…')}…"
        elif len(lines) == MOST_LINES:
            break
        else:
            lines.append(str(line))
    else:
        if found.after is None:
            return lines
    return [*lines, f"… {found.size:,} bytes in all"]


def header_lines(headers: Headers, *, reveal: bool = False) -> list[str]:
    """Return the headers in lines that are safe to show."""
    lines = [f"{clean(name)}: {header_text(name, value, reveal=reveal)}" for name, value in headers]
    shown = [_bounded(line) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(f"… {len(lines) - MOST_LINES:,} more headers")
    return shown


def header_text(name: str, value: bytes, *, reveal: bool = False) -> str:
    """Return the value of a header on one line that is safe to show, or its beginning."""
    if not reveal and is_secret_name(name):
        return MASK
    text = value[:MOST_WIDTH].decode("utf-8", "backslashreplace")
    return clean(text if reveal else redact(text))


def _bounded(line: str) -> str:
    if len(line) <= MOST_WIDTH:
        return line
    return f"{line[:MOST_WIDTH]}… ({len(line):,} characters)"


class MessageView(Struct, frozen=True, kw_only=True):
    """A message with its secrets masked; `headers` and `preview` are lines for people."""

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
    """The place where a drained letter was found, and its data there."""

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


def view(letter: DeadLetter, *, reveal: bool = False, capture: bool = False) -> LetterView:
    """
    Return the view of a letter; with `reveal`, nothing is masked.

    With `capture`, the header `dlq-found` of a drained letter is included.
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


def view_message(message: Message, *, reveal: bool = False, capture: bool = False) -> MessageView:
    """Return the view of a message."""
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


MOST_ACTS: Final = 500


class Kind(StrEnum):
    """The kinds of moments."""

    SENT = "sent"
    RECEIVED = "received"
    ATTEMPT = "attempt"
    DIED = "died"
    ACT = "act"  # what a person or a program did with the letter
    REPLAY = "replay"  # a campaign took it
    OUTCOME = "outcome"  # ...and this is what became of that


class Moment(Struct, frozen=True, kw_only=True):
    """One moment in the life of a letter."""

    at: datetime
    kind: Kind
    text: str = ""
    attempt: Attempt | None = None
    act: AuditEntry | None = None
    replay: ReplayItem | None = None
    given_up: bool = False  # somebody stopped waiting for the outcome of this replay


class Story(Struct, frozen=True, kw_only=True):
    """A letter and everything that happened to it, first to last."""

    letter: DeadLetter
    moments: tuple[Moment, ...]
    left_out: bool = False  # there are more acts than are told here


async def tell(store: LetterStore, letter: DeadLetter) -> Story:
    """Return everything that is known about a letter."""
    acts = await _acts(store, letter.id)
    replays = await store.replays([letter.id])
    moments = [
        *_life(letter),
        *(moment for item in replays for moment in _replay(letter, item)),
        *(_act(entry) for entry in acts[:MOST_ACTS]),
    ]
    # Stable: what is recorded for the same instant stays in the order of telling.
    moments.sort(key=lambda moment: moment.at)
    return Story(letter=letter, moments=tuple(moments), left_out=len(acts) > MOST_ACTS)


async def reveal(store: LetterStore, letter: DeadLetter, by: By) -> None:
    """Record in the audit that somebody saw unmasked contents."""
    await store.record("reveal", letter.id, by, "shown unmasked")


def _life(letter: DeadLetter) -> list[Moment]:
    head, message = letter.head, letter.message
    moments: list[Moment] = []
    # Of a drained message nobody may know when it was sent: only when it was found.
    if origin_of(message) is None or message.sent_at <= head.dead_at:
        moments.append(Moment(at=message.sent_at, kind=Kind.SENT, text=head.source))
    if letter.first_received_at is not None:
        moments.append(Moment(at=letter.first_received_at, kind=Kind.RECEIVED, text=head.consumer))
    attempts = letter.story()
    last = {one.generation: one for one in attempts if one.outcome != "cut"}
    for attempt in attempts:
        moments.append(Moment(at=attempt.at, kind=Kind.ATTEMPT, text=attempt.text, attempt=attempt))
        # It was replayed afterwards, so it had died of this one.
        if attempt is last.get(attempt.generation) and attempt.generation < max(last):
            moments.append(Moment(at=attempt.at, kind=Kind.DIED))
    text = head.reason_text or head.reason
    moments.append(Moment(at=head.dead_at, kind=Kind.DIED, text=text))
    return moments


def _replay(letter: DeadLetter, item: ReplayItem) -> list[Moment]:
    """Return when a campaign took the letter, and the outcome if known."""
    moments: list[Moment] = []
    if item.taken_at is not None:  # and not when sent: its consumer may be faster
        head = letter.head
        waiting = is_out(head.state, head.replays, item.generation)
        moments.append(
            Moment(
                at=item.taken_at,
                kind=Kind.REPLAY,
                text=target_of(head, item.to),
                replay=item,
                given_up=item.outcome in OUT | {Outcome.UNCONFIRMED} and not waiting,
            )
        )
    outcomes = ((item.confirmed_at, Outcome.CONFIRMED), (item.settled_at, item.outcome))
    moments += (
        Moment(at=at, kind=Kind.OUTCOME, text=outcome, replay=item)
        for at, outcome in outcomes
        if at is not None and outcome is not Outcome.UNCONFIRMED
    )
    return moments


_MOVED: Final[dict[str, str]] = {
    State.QUARANTINED: "quarantined it",
    State.REPLAYING: "sent it back",
    State.REPLAYED: "confirmed that it was handled",
}
_ACTS: Final = {
    "note": "noted",
    "edit": "edited it",
    "reveal": "revealed masked values",
    "import": "imported it",
    "replay": "replayed it",
}


def act_text(entry: AuditEntry) -> str:
    """Return what somebody did with a letter, as in "edited it (key)"."""
    if entry.action == "note":
        return f"noted: {entry.detail}"
    verb = verb_of(entry)
    if entry.action == "move":
        new = entry.detail.rpartition(" ")[2]
        return f"{verb.done} it" if verb else _MOVED.get(new, entry.detail)
    action = f"{verb.done} it" if verb else _ACTS.get(entry.action, entry.action)
    return f"{action} ({entry.detail})" if entry.detail else action


def _act(entry: AuditEntry) -> Moment:
    return Moment(at=entry.at, kind=Kind.ACT, text=entry.detail, act=entry)


async def _acts(store: LetterStore, letter_id: str) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    after = 0
    while len(entries) <= MOST_ACTS:
        page = await store.audit(target=letter_id, after=after, limit=200)
        entries += page
        if len(page) < 200:
            break
        after = page[-1].seq
    return entries
