"""
The contents of letters as rows, and rows as whole letters.

Like everything else they are read in one step: bodies laid end to end in one
blob, and so the rest of them.
"""

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.errors import Refused
from deadletter.core.ids import body_digest
from deadletter.core.keeping import Known
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Headers, Lineage, Message

from .letters_rows import HEAD, HEADS, head_of
from .sql import Row, Values, shown, stored

_INLINE: Final = 16_384  # bytes; a larger body is fetched by itself
_WHOLE: Final = f"{HEAD}, tag, frame"
_SMALL: Final = f"CASE WHEN length(body) <= {_INLINE} THEN body END"
_END_TO_END: Final = f"""
SELECT json_group_array(json_array(
        {{}}, hex(digest), length(rest), length(body))),
    CAST(group_concat(rest, '') AS BLOB), CAST(group_concat({_SMALL}, '') AS BLOB),
    {{}}
FROM ({{}})
"""  # noqa: S608 -- the columns are ours
_ROW_BY_ROW: Final = "SELECT {}, hex(digest), rest, body, {} FROM ({})"
_STORIES: Final = "CAST(group_concat(history, char(30)) AS BLOB)"
_BODY: Final = "SELECT body FROM letter_contents WHERE letter = ?"


class _Rest(Struct, frozen=True, array_like=True, gc=False):
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


_Contents: TypeAlias = tuple[Row, bytes, bytes, str]
"""A row up to its digest, then rest, body and history."""


def contents_of(seq: int, known: Known, letter: DeadLetter) -> Row:
    """Its contents as stored: seq, digest, frame, rest, body, history."""
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
        message.body,
        stored(known.history),
    )


def whole(
    connection: sqlite3.Connection, select: str, values: Values, *, story: bool = True
) -> list[tuple[int, DeadLetter]]:
    """
    Complete letters, each with what the select calls its `tag`.

    It selects from `letters` and `letter_contents`, in the order that is wanted.
    Without their story they are read faster.
    """
    found = _contents(connection, _WHOLE, select, values, story=story)
    return [
        (row[HEADS], _letter(row, rest, body, history))
        for row, rest, body, history in found
    ]


def messages(
    connection: sqlite3.Connection, columns: str, select: str, values: Values
) -> list[tuple[Row, Message]]:
    """
    What was sent, each with a row that begins with these columns: seq, id, others.

    The select is as for `whole`, but needs to select nothing else than these and
    digest, rest and body.
    """
    width = columns.count(",") + 1
    found = []
    contents = _contents(connection, columns, select, values, story=False)
    for row, rest, body, _ in contents:
        _check(row, row[width], body)
        found.append((row, _message(_unpacked(rest), body)))
    return found


def _contents(
    connection: sqlite3.Connection,
    columns: str,
    select: str,
    values: Values,
    *,
    story: bool,
) -> Iterator[_Contents]:
    end_to_end = _END_TO_END.format(columns, _STORIES if story else "NULL", select)
    row_by_row = _ROW_BY_ROW.format(columns, "history" if story else "''", select)
    try:
        row = connection.execute(end_to_end, values).fetchone()
    except sqlite3.OperationalError as error:
        if "JSON cannot hold BLOB" not in str(error):
            raise
        return _row_by_row(connection, row_by_row, values)
    rows: list[Row] = msgspec.json.decode(row[0])
    histories = [""] * len(rows)
    if story and rows:
        histories = row[3].decode("utf-8", "surrogatepass").split("\x1e")
    if len(histories) != len(rows):  # one of them holds what parts them
        return _row_by_row(connection, row_by_row, values)
    return _cut_up(connection, rows, row[1] or b"", row[2] or b"", histories)


def _cut_up(
    connection: sqlite3.Connection,
    rows: list[Row],
    rests: bytes,
    bodies: bytes,
    histories: list[str],
) -> Iterator[_Contents]:
    at_rest = at_body = 0
    for row, history in zip(rows, histories, strict=True):
        rest, size = row[-2:]
        if size <= _INLINE:
            body = bodies[at_body : at_body + size]
            at_body += size
        else:
            ((body,),) = connection.execute(_BODY, (row[0],)).fetchall()
        yield row, rests[at_rest : at_rest + rest], body, history
        at_rest += rest


def _row_by_row(
    connection: sqlite3.Connection, select: str, values: Values
) -> Iterator[_Contents]:
    for row in connection.execute(select, values).fetchall():
        *found, rest, body, history = row
        yield [shown(column) for column in found], rest, body, shown(history)


def _letter(row: Row, rest: bytes, body: bytes, history: str) -> DeadLetter:
    _check(row, row[HEADS + 2], body)
    more = _unpacked(rest)
    return DeadLetter(
        head=head_of(row),
        message=_message(more, body),
        history=history,
        position=more.position,
        first_received_at=more.first_received_at,
        frame=row[HEADS + 1],
        route=more.route,
        retry_wish=more.retry_wish,
    )


def _check(row: Row, digest: str, body: bytes) -> None:
    if body_digest(body) != bytes.fromhex(digest):
        raise Refused(
            f"the body of letter {row[1]} is not the one that was kept: the file is"
            " damaged; run verify, and purge the letter"
        )


def _message(more: _Rest, body: bytes) -> Message:
    return Message(
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
