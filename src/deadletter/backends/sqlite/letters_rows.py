"""Letters as rows, and rows as letters."""

import sqlite3
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.decision import Reason
from deadletter.core.errors import Refused
from deadletter.core.failure import Trouble
from deadletter.core.ids import body_digest
from deadletter.core.keeping import Known
from deadletter.core.letter import DeadLetter, LetterHead, State
from deadletter.core.message import Headers, Lineage, Message
from deadletter.core.query.pattern import fold

from .rows import micros, when
from .sql import Row, Values, fetch, storable, stored

HEAD: Final = """
seq, id, source, message_id, state, partition, key, business_key, reason, reason_text,
trouble, code, error_type, error_text, fingerprint, attempts, first_failed_at, dead_at,
consumer, version, trace_id, replays, conflict, owner, size, revision
"""
"""The columns `head_of` reads, in its order."""

ROW: Final = f"{HEAD}, error_name, generation, spent"
"""The columns `row_of` writes, in its order."""

_HEADS: Final = HEAD.count(",") + 1
_INLINE: Final = 16_384  # bytes; a larger body is fetched by itself
_WHOLE: Final = f"""
{HEAD}, history, frame, hex(rest), hex(digest),
CASE WHEN length(body) <= {_INLINE} THEN hex(body) END
"""
_BODY: Final = "SELECT body FROM letter_contents WHERE letter = ?"

_WRITTEN: Final = {
    member: member.value for kind in (State, Reason, Trouble) for member in kind
}  # asking each member for its value takes ten times as long
_STATES: Final = {state.value: state for state in State}
_REASONS: Final = {reason.value: reason for reason in Reason}
_TROUBLES: Final = {trouble.value: trouble for trouble in Trouble}


class _Rest(Struct, frozen=True, array_like=True):
    """What of a letter has no column of its own."""

    id: str
    sent_at: datetime
    headers: Headers
    content_type: str | None
    key: str | None
    expires_at: datetime | None
    reply_to: str | None
    idempotency_key: str | None
    traceparent: str | None
    tracestate: str | None
    lineage: Lineage | None
    position: str | None
    first_received_at: datetime | None
    route: str | None
    retry_wish: bool | None


_ODD: Final = b"\xc1"  # begins nothing that msgpack writes
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Rest).decode


def row_of(seq: int, known: Known) -> Row:
    """What is stored of a letter but for its contents."""
    head = known.head
    return storable(
        (
            seq,
            head.id,
            head.source,
            head.message_id,
            _WRITTEN[head.state],
            head.partition,
            head.key,
            head.business_key,
            _WRITTEN[head.reason],
            head.reason_text,
            _WRITTEN[head.trouble],
            head.code,
            head.error_type,
            head.error_text,
            head.fingerprint,
            head.attempts,
            micros(head.first_failed_at),
            micros(head.dead_at),
            head.consumer,
            head.version,
            head.trace_id,
            head.replays,
            head.conflict,
            head.owner,
            head.size,
            head.revision,
            fold(head.error_name),
            known.generation,
            known.spent,
        )
    )


def head_of(row: Row) -> LetterHead:
    """The head in the first columns of a row."""
    return LetterHead(
        id=row[1],
        source=row[2],
        message_id=row[3],
        state=_STATES[row[4]],
        partition=row[5],
        key=row[6],
        business_key=row[7],
        reason=_REASONS[row[8]],
        reason_text=row[9],
        trouble=_TROUBLES[row[10]],
        code=row[11],
        error_type=row[12],
        error_text=row[13],
        fingerprint=row[14],
        attempts=row[15],
        first_failed_at=when(row[16]),
        dead_at=when(row[17]),
        consumer=row[18],
        version=row[19],
        trace_id=row[20],
        replays=row[21],
        conflict=bool(row[22]),
        owner=row[23],
        size=row[24],
        revision=row[25],
    )


def contents_of(seq: int, known: Known, letter: DeadLetter) -> Row:
    """Its contents as stored: seq, digest, frame, rest, history, body."""
    message = letter.message
    rest = _Rest(
        message.id,
        message.sent_at,
        message.headers,
        message.content_type,
        message.key,
        message.expires_at,
        message.reply_to,
        message.idempotency_key,
        message.traceparent,
        message.tracestate,
        message.lineage,
        letter.position,
        letter.first_received_at,
        letter.route,
        letter.retry_wish,
    )
    return (
        seq,
        known.digest,
        stored(known.frame),
        _packed(rest),
        stored(known.history),
        message.body,
    )


def whole(
    connection: sqlite3.Connection, select: str, values: Values
) -> list[tuple[int, DeadLetter]]:
    """The letters of a select over `letters` and `letter_contents`, with their seq."""
    rows = fetch(connection, _WHOLE, select, values)
    return [(row[0], _letter(row, _body(connection, row))) for row in rows]


def _body(connection: sqlite3.Connection, row: Row) -> bytes:
    if row[-1] is not None:
        return bytes.fromhex(row[-1])
    ((body,),) = connection.execute(_BODY, (row[0],)).fetchall()
    return bytes(body)


def _letter(row: Row, body: bytes) -> DeadLetter:
    head = head_of(row)
    history, frame, rest, digest, _ = row[_HEADS:]
    if body_digest(body) != bytes.fromhex(digest):
        raise Refused(
            f"the body of letter {head.id} is not the one that was kept: the file is"
            " damaged; run verify, and purge the letter"
        )
    more = _unpacked(bytes.fromhex(rest))
    return DeadLetter(
        head=head,
        message=Message(
            id=more.id,
            body=body,
            sent_at=more.sent_at,
            headers=more.headers,
            content_type=more.content_type,
            key=more.key,
            expires_at=more.expires_at,
            reply_to=more.reply_to,
            idempotency_key=more.idempotency_key,
            traceparent=more.traceparent,
            tracestate=more.tracestate,
            lineage=more.lineage,
        ),
        history=history,
        position=more.position,
        first_received_at=more.first_received_at,
        frame=frame,
        route=more.route,
        retry_wish=more.retry_wish,
    )


def _packed(rest: _Rest) -> bytes:
    try:
        return _pack(rest)
    except UnicodeEncodeError:  # lone surrogates, which are no text to msgpack
        plain = msgspec.to_builtins(rest, builtin_types=(bytes, datetime))
        return _ODD + _pack(_spelled(plain))


def _unpacked(packed: bytes) -> _Rest:
    if packed.startswith(_ODD):
        plain = msgspec.msgpack.decode(packed[1:], ext_hook=_read)
        return msgspec.convert(plain, _Rest)
    return _unpack(packed)


def _spelled(value: Any) -> Any:
    match value:
        case str():
            return msgspec.msgpack.Ext(1, value.encode("utf-8", "surrogatepass"))
        case list() | tuple():
            return [_spelled(part) for part in value]
        case dict():
            return {name: _spelled(part) for name, part in value.items()}
    return value


def _read(_: int, data: memoryview) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")
