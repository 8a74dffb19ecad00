"""Letters as columns, and rows as letters."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from deadletter.core.errors import Refused
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import body_digest
from deadletter.core.letter import DeadLetter, LetterHead, State
from deadletter.core.letter_filing import Known, message_seal, story_seal
from deadletter.core.message import Message
from deadletter.core.packing import letter_of, pack_outgoing, pack_rest, unpack_message
from deadletter.core.query.fields import fold
from deadletter.core.replay_rules import sortable_position
from deadletter.core.seals import Sealing

from .rows import legible, octets, storable

HEAD: Final = """
l.seq, l.id, l.source, l.message_id, m.state, l.partition, l.key, l.business_key,
l.reason, l.reason_text, l.trouble, l.code, l.error_type, l.error_text, l.fingerprint,
l.attempts, l.first_failed_at, l.dead_at, l.consumer, l.version, l.trace_id, m.replays,
l.conflict, l.size, m.revision
"""
"""The columns `head_of` reads, in its order."""

FOR_COPIES: Final = {
    "outgoing": "bytea",
    "sent_at": "timestamptz",
    "expires_at": "timestamptz",
    "mark": "bigint",
    "mark_key": "bytea",
}
"""Name and type of what copies of a message are made of, beside id and body."""

CONTENTS: Final = "c.digest, c.frame, c.rest, c.body, c.history"
"""The columns that follow a head where whole letters are read."""

JOINED: Final = """
deadletter.letters l JOIN deadletter.letter_marks m ON m.letter = l.seq
"""
WHOLE: Final = f"{JOINED} JOIN deadletter.letter_contents c ON c.letter = l.seq"

GET: Final = f"""
SELECT {HEAD}, {CONTENTS}, o.digest, o.rest, o.body
FROM {WHOLE} LEFT JOIN deadletter.letter_originals o ON o.letter = l.seq
WHERE l.id = ANY($1)
"""  # noqa: S608 -- made of constants
"""All columns of letters, for `with_original`."""

# Name and type of what is written of a letter, in the order of `row_of`.
TYPES: Final = {
    "id": "text",
    "source": "text",
    "message_id": "text",
    "state": "text",
    "partition": "text",
    "key": "text",
    "business_key": "text",
    "reason": "text",
    "reason_text": "text",
    "trouble": "text",
    "code": "text",
    "error_type": "text",
    "error_text": "text",
    "fingerprint": "text",
    "attempts": "bigint",
    "first_failed_at": "timestamptz",
    "dead_at": "timestamptz",
    "consumer": "text",
    "version": "text",
    "trace_id": "text",
    "replays": "bigint",
    "conflict": "bool",
    "size": "bigint",
    "revision": "bigint",
    "error_name": "text",
    "generation": "bigint",
    "spent": "bigint",
}
MARKS: Final = ("state", "fingerprint", "dead_at", "replays", "revision")
"""Columns of `letter_marks`."""

_MOST: Final = (1 << 63) - 1
_HEADS: Final = HEAD.count(",") + 1
_STATES: Final = {state.value: state for state in State}
_REASONS: Final = {reason.value: reason for reason in Reason}
_UNOPENED: Final = Message(id="", body=b"", sent_at=datetime.min.replace(tzinfo=UTC))
_TROUBLES: Final = {trouble.value: trouble for trouble in Trouble}


def row_of(known: Known) -> Sequence[Any]:
    """Return the row of a letter without its contents, in the order of `TYPES`."""
    head = known.head
    return storable(
        (
            head.id,
            head.source,
            head.message_id,
            head.state,
            head.partition,
            head.key,
            head.business_key,
            head.reason,
            head.reason_text,
            head.trouble,
            head.code,
            head.error_type,
            head.error_text,
            head.fingerprint,
            head.attempts,
            head.first_failed_at,
            head.dead_at,
            head.consumer,
            head.version,
            head.trace_id,
            head.replays,
            head.conflict,
            head.size,
            head.revision,
            fold(head.error_name),
            min(known.generation, _MOST),  # somebody's header may claim anything
            known.spent,
        )
    )


def contents_of(known: Known, letter: DeadLetter, sealing: Sealing) -> Sequence[Any]:
    """Its contents as stored, up to its place among those sent at the same time."""
    rest = pack_rest(letter)
    return (
        known.current,
        octets(known.frame),
        rest,
        letter.message.body,
        octets(known.history),
        message_seal(known, letter, rest, sealing),
        story_seal(known, sealing),
        *for_copies(letter.message, sealing),
        sortable_position(letter.position),
    )


def for_copies(message: Message, sealing: Sealing) -> Sequence[Any]:
    """Return the values for copies of a message, in the order of `FOR_COPIES`."""
    marks = sealing.marks()
    return (
        pack_outgoing(message),
        message.sent_at,
        message.expires_at,
        marks.message(message.id, message.body),
        marks.key_id,
    )


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """Rows turned into columns, for `unnest`; so many even where there is no row."""
    return list(zip(*rows, strict=True)) or [()] * width


def head_of(row: Sequence[Any]) -> LetterHead:
    """The head in the first columns of a row."""
    (
        _, id_, source, message_id, state, partition, key, business_key, reason,
        reason_text, trouble, code, error_type, error_text, fingerprint, attempts,
        first_failed_at, dead_at, consumer, version, trace_id, replays, conflict,
        size, revision,
    ) = legible(row[:_HEADS])  # fmt: skip
    return LetterHead(
        id=id_,
        source=source,
        message_id=message_id,
        state=_STATES[state],
        partition=partition,
        key=key,
        business_key=business_key,
        reason=_REASONS[reason],
        reason_text=reason_text,
        trouble=_TROUBLES[trouble],
        code=code,
        error_type=error_type,
        error_text=error_text,
        fingerprint=fingerprint,
        attempts=attempts,
        first_failed_at=first_failed_at,
        dead_at=dead_at,
        consumer=consumer,
        version=version,
        trace_id=trace_id,
        replays=replays,
        conflict=conflict,
        size=size,
        revision=revision,
    )


def whole(row: Sequence[Any]) -> DeadLetter:
    """The letter in the columns `HEAD` and `CONTENTS`."""
    digest, frame, rest, body, history = row[_HEADS : _HEADS + 5]
    check_body(row[1], body, digest)
    return letter_of(
        head_of(row),
        body=body,
        history=history.decode("utf-8", "surrogatepass"),
        frame=frame.decode("utf-8", "surrogatepass"),
        rest=rest,
    )


def with_original(row: Sequence[Any]) -> DeadLetter:
    """The letter in a row of `GET`."""
    letter = whole(row)
    digest, rest, body = row[-3:]
    if digest is None:
        return letter
    check_body(letter.id, body, digest)
    return replace(letter, original=unpack_message(rest, body))


def opened(row: Sequence[Any]) -> DeadLetter:
    """The letter in the columns `HEAD`, rest and body, as far as searches look."""
    rest, body = row[_HEADS : _HEADS + 2]
    return letter_of(head_of(row), body=body, history="", frame="", rest=rest)


def unopened(row: Sequence[Any]) -> DeadLetter:
    """The letter in the columns `HEAD`, without its contents."""
    return DeadLetter(head=head_of(row), message=_UNOPENED)


def check_body(id_: str, body: bytes, digest: bytes) -> None:
    """Refuse a body that is not the one that was kept."""
    if body_digest(body) != digest:
        raise Refused(
            f"the body of letter {id_} is not the one that was kept: the database is"
            " damaged; run verify, and purge the letter"
        )
