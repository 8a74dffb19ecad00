"""Letters that get another message; what died is kept beside it."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from deadletter.core.audit import act
from deadletter.core.editing import Edit, check_revision, edited, no_letter
from deadletter.core.ids import body_digest
from deadletter.core.keeping import Known
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.core.packing import pack_rest, unpack_message
from deadletter.core.seals import EDITED, Sealing

from .audit import append
from .letters_whole import check_body, whole
from .marks import sealing_of
from .sql import Row, ids, stored, write

_GET: Final = """
SELECT l.*, c.*, l.seq AS tag FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_ORIGINALS: Final = """
SELECT l.seq, l.id, o.digest, o.rest, o.body
FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_originals o ON o.letter = l.seq
"""
_SET_ASIDE: Final = """
INSERT INTO letter_originals
SELECT letter, digest, rest, body, seal FROM letter_contents
WHERE letter = ? ON CONFLICT DO NOTHING
"""
_PUT: Final = """
UPDATE letter_contents SET digest = ?, rest = ?, body = ?, seal = ? WHERE letter = ?
"""
_MARK: Final = "UPDATE letters SET key = ?, size = ?, revision = ? WHERE seq = ?"
_KEEP: Final = "INSERT INTO letter_originals (letter, digest, rest, body, seal) VALUES"


def get(connection: sqlite3.Connection, letters: Sequence[str]) -> list[DeadLetter]:
    """Whole letters, in the order asked for; those that exist."""
    wanted = ids(letters)
    by_id = {letter.id: letter for _, letter in whole(connection, _GET, (wanted,))}
    for id_, message in originals(connection, letters).items():
        by_id[id_] = replace(by_id[id_], original=message)
    return [by_id[id_] for id_ in letters if id_ in by_id]


def originals(
    connection: sqlite3.Connection, letters: Sequence[str]
) -> dict[str, Message]:
    """The messages that died, of those letters that were edited since."""
    found: dict[str, Message] = {}
    for row in connection.execute(_ORIGINALS, (ids(letters),)).fetchall():
        *place, digest, rest, body = row
        check_body(place, digest, body)
        found[place[1]] = unpack_message(rest, body)
    return found


def edit(connection: sqlite3.Connection, edit: Edit, now: datetime) -> int:
    """Put another message into a letter; its new revision."""
    found = whole(connection, _GET, (ids([edit.id]),))
    if not found:
        raise no_letter(edit.id)
    ((seq, letter),) = found
    check_revision(letter.head, edit.revision)
    head, detail = edited(letter.head, letter.message, edit.message)
    connection.execute(_SET_ASIDE, (seq,))
    rest = pack_rest(replace(letter, message=edit.message))
    digest = body_digest(edit.message.body)
    seal = sealing_of(connection).message(head, digest, rest, EDITED)
    connection.execute(_PUT, (digest, rest, edit.message.body, seal, seq))
    connection.execute(_MARK, (stored(head.key), head.size, head.revision, seq))
    append(connection, [act("edit", edit.id, edit.by, at=now, detail=detail)])
    return head.revision


def keep_originals(
    connection: sqlite3.Connection, letters: Sequence[tuple[int, Known, DeadLetter]]
) -> None:
    """What died, of new letters that were edited elsewhere: seq, and the letter."""
    sealing = sealing_of(connection)
    write(
        connection,
        _KEEP,
        [
            _original(seq, known, letter.original, letter, sealing)
            for seq, known, letter in letters
            if letter.original is not None
        ],
    )


def _original(
    seq: int, known: Known, died: Message, letter: DeadLetter, sealing: Sealing
) -> Row:
    rest = pack_rest(replace(letter, message=died))
    seal = sealing.message(known.head, known.digest, rest)
    return seq, known.digest, rest, died.body, seal
