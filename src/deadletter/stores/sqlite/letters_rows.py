"""The heads of letters as rows, and rows as heads."""

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from deadletter.core.errors import Refused
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import body_digest
from deadletter.core.letter import DeadLetter, LetterHead, State, error_name
from deadletter.core.letter_filing import Known, message_seal, story_seal
from deadletter.core.message import Message
from deadletter.core.packing import letter_of, pack_rest, unpack_message
from deadletter.core.query.fields import fold
from deadletter.core.seals import Sealing

from .sql import (
    EPOCH,
    MICROSECOND,
    Row,
    Values,
    fetch_odd,
    ids,
    is_odd_text,
    is_plain,
    shown,
    storable,
    stored,
    when,
)

HEAD: Final = """
seq, id, source, message_id, state, partition, key, business_key, reason, reason_text,
trouble, code, error_type, error_text, fingerprint, attempts, first_failed_at, dead_at,
consumer, version, trace_id, replays, conflict, size, revision
"""
"""The columns `head_of` reads, in its order."""

ROW: Final = """
seq, id, source, message_id, state, partition, key, reason, reason_text, trouble, code,
error_type, error_text, fingerprint, attempts, first_failed_at, dead_at, consumer,
version, replays, conflict, size, revision, error_name, generation, spent
"""
"""The columns `row_of` writes, in its order."""

RARE: Final = "business_key, trace_id"
"""The columns `rare_of` writes, in its order."""

HEADS: Final = HEAD.count(",") + 1
"""How many they are."""

WRITTEN: Final = {member: member.value for kind in (State, Reason, Trouble) for member in kind}
"""Members as they are stored; asking each for its value takes ten times as long."""

_STATES: Final = {state.value: state for state in State}
_REASONS: Final = {reason.value: reason for reason in Reason}
_TROUBLES: Final = {trouble.value: trouble for trouble in Trouble}


def row_of(seq: int, known: Known) -> Row:
    """Return the row of a letter without its contents and its rare fields."""
    head = known.head
    row = (
        seq,
        head.id,
        head.source,
        head.message_id,
        WRITTEN[head.state],
        head.partition,
        head.key,
        WRITTEN[head.reason],
        head.reason_text,
        WRITTEN[head.trouble],
        head.code,
        head.error_type,
        head.error_text,
        head.fingerprint,
        head.attempts,
        (head.first_failed_at - EPOCH) // MICROSECOND,
        (head.dead_at - EPOCH) // MICROSECOND,
        head.consumer,
        head.version,
        head.replays,
        1 if head.conflict else 0,
        head.size,
        head.revision,
        _error_name(head.error_type),
        known.generation,
        known.spent,
    )
    # All texts that are not ours, joined faster than by looking for them.
    texts = (
        f"{head.source}{head.message_id}{head.partition}{head.key}{head.reason_text}"
        f"{head.code}{head.error_type}{head.error_text}{head.fingerprint}"
        f"{head.consumer}{head.version}"
    )
    return row if is_plain(texts) else storable(row)


@lru_cache(maxsize=1024)  # most letters have the error of another
def _error_name(error_type: str) -> str | bytes | None:
    return stored(fold(error_name(error_type)))


def rare_of(head: LetterHead) -> Row:
    """Return the rare fields of a letter: the rest of its row."""
    return stored(head.business_key), stored(head.trace_id)


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
        size=row[23],
        revision=row[24],
    )


# The contents of letters as rows, and rows as whole letters.
#
# Like everything else they are read in one step: bodies laid end to end in one
# blob, and so the rest of them.

_INLINE: Final = 16_384  # bytes; a larger body is fetched by itself
_WHOLE: Final = f"{HEAD}, tag, frame"
_SMALL: Final = f"CASE WHEN length(body) <= {_INLINE} THEN body END"
_END_TO_END: Final = """
SELECT json_group_array(json_array(
        {}, hex(digest), length(rest), length(body))),
    CAST(group_concat(rest, '') AS BLOB), CAST(group_concat({}, '') AS BLOB),
    {}
FROM ({})
"""
_ROW_BY_ROW: Final = "SELECT {}, hex(digest), rest, body, {} FROM ({})"
_STORIES: Final = "CAST(group_concat(history, char(30)) AS BLOB)"
_BODY: Final = "SELECT body FROM letter_contents WHERE letter = ?"


_Contents: TypeAlias = tuple[Row, bytes, bytes, str]
"""A row up to its digest, then rest, body and history."""


def contents_of(seq: int, known: Known, letter: DeadLetter, sealing: Sealing) -> Row:
    """Its contents as stored: seq, digest, frame, rest, body, history, two seals."""
    rest, body = pack_rest(letter), letter.message.body
    story: Row = (known.frame, known.history)
    if not is_plain(known.frame + known.history):
        story = storable(story)
    # Only these types are bound as they are; others are looked up for an adapter.
    return (
        seq,
        bytearray(known.current),
        story[0],
        bytearray(rest),
        bytearray(body) if len(body) <= _INLINE else body,
        story[1],
        bytearray(message_seal(known, letter, rest, sealing)),
        bytearray(story_seal(known, sealing)),
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
    return [(row[HEADS], _letter(row, rest, body, history)) for row, rest, body, history in found]


_GET: Final = """
SELECT l.*, c.*, l.seq AS tag FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_ORIGINALS: Final = """
SELECT l.seq, l.id, o.digest, o.rest, o.body
FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_originals o ON o.letter = l.seq
"""


def get(connection: sqlite3.Connection, letters: Sequence[str]) -> list[DeadLetter]:
    """Whole letters, in the order asked for; those that exist."""
    wanted = ids(letters)
    by_id = {letter.id: letter for _, letter in whole(connection, _GET, (wanted,))}
    for id_, message in originals(connection, letters).items():
        by_id[id_] = replace(by_id[id_], original=message)
    return [by_id[id_] for id_ in letters if id_ in by_id]


def originals(connection: sqlite3.Connection, letters: Sequence[str]) -> dict[str, Message]:
    """The messages that died, of those letters that were edited since."""
    found: dict[str, Message] = {}
    for row in connection.execute(_ORIGINALS, (ids(letters),)).fetchall():
        *place, digest, rest, body = row
        check_body(place, digest, body)
        found[place[1]] = unpack_message(rest, body)
    return found


def opened(connection: sqlite3.Connection, select: str, values: Values) -> list[DeadLetter]:
    """
    Letters as far as a search looks at them: no story, and of bodies what is selected.

    Select as for `whole`, and few letters: all bodies are read at once. Whether they
    are as they were kept is for those who read the letters themselves.
    """
    end_to_end = _END_TO_END.format(_WHOLE, "body", "NULL", select)
    row_by_row = _ROW_BY_ROW.format(_WHOLE, "''", select)
    try:
        row = connection.execute(end_to_end, values).fetchone()
        rows: list[Row] = msgspec.json.decode(row[0])
        stories = [""] * len(rows)
        found = _cut_up(connection, rows, row[1:], stories, inline=sys.maxsize)
    except sqlite3.OperationalError as error:
        if "JSON cannot hold BLOB" not in str(error):
            raise
        found = _row_by_row(connection, row_by_row, values)
    return [
        letter_of(head_of(row), body=body, history="", frame="", rest=rest)
        for row, rest, body, _ in found
    ]


def messages(
    connection: sqlite3.Connection, columns: str, select: str, values: Values
) -> list[tuple[Row, Message]]:
    """
    Return messages, each with a row that begins with these columns: seq, id, others.

    The select is as for `whole`, but needs to select nothing else than these and
    digest, rest and body.
    """
    width = columns.count(",") + 1
    found = []
    contents = _contents(connection, columns, select, values, story=False)
    for row, rest, body, _ in contents:
        check_body(row, bytes.fromhex(row[width]), body)
        found.append((row, unpack_message(rest, body)))
    return found


def _contents(
    connection: sqlite3.Connection, columns: str, select: str, values: Values, *, story: bool
) -> Iterator[_Contents]:
    stories = _STORIES if story else "NULL"
    end_to_end = _END_TO_END.format(columns, _SMALL, stories, select)
    row_by_row = _ROW_BY_ROW.format(columns, "history" if story else "''", select)
    try:
        row = connection.execute(end_to_end, values).fetchone()
    except sqlite3.OperationalError as error:
        if not is_odd_text(error):
            raise
        return _row_by_row(connection, row_by_row, values)
    rows: list[Row] = msgspec.json.decode(row[0])
    histories = [""] * len(rows)
    if story and rows:
        histories = row[3].decode("utf-8", "surrogatepass").split("\x1e")
    if len(histories) != len(rows):  # one of them holds what parts them
        return _row_by_row(connection, row_by_row, values)
    return _cut_up(connection, rows, row[1:], histories, inline=_INLINE)


def _cut_up(
    connection: sqlite3.Connection,
    rows: list[Row],
    contents: Row,
    histories: list[str],
    *,
    inline: int,
) -> Iterator[_Contents]:
    rests, bodies = contents[0] or b"", contents[1] or b""
    at_rest = at_body = 0
    for row, history in zip(rows, histories, strict=True):
        rest, size = row[-2:]
        if size <= inline:
            body = bodies[at_body : at_body + size]
            at_body += size
        else:
            ((body,),) = connection.execute(_BODY, (row[0],)).fetchall()
        yield row, rests[at_rest : at_rest + rest], body, history
        at_rest += rest


def _row_by_row(connection: sqlite3.Connection, select: str, values: Values) -> Iterator[_Contents]:
    for row in fetch_odd(connection, select, values):
        *found, rest, body, history = row
        yield [shown(column) for column in found], rest, body, shown(history)


def _letter(row: Row, rest: bytes, body: bytes, history: str) -> DeadLetter:
    check_body(row, bytes.fromhex(row[HEADS + 2]), body)
    return letter_of(head_of(row), body=body, history=history, frame=row[HEADS + 1], rest=rest)


def check_body(row: Row, digest: bytes, body: bytes) -> None:
    """Refuse a body that is not the one that was kept, of the row's seq and id."""
    if body_digest(body) != digest:
        raise Refused(
            f"the body of letter {row[1]} is not the one that was kept: the file is"
            " damaged; run verify, and purge the letter"
        )
