"""Letters that get another message; what died is kept beside it."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import Known
from deadletter.core.message import Message
from deadletter.core.packing import pack_rest, unpack_message
from deadletter.core.seals import Sealing

from .audit import sealing_of
from .letters_rows import check_body, whole
from .sql import Row, ids, write

_GET: Final = """
SELECT l.*, c.*, l.seq AS tag FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_ORIGINALS: Final = """
SELECT l.seq, l.id, o.digest, o.rest, o.body
FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_originals o ON o.letter = l.seq
"""
_KEEP: Final = "INSERT INTO letter_originals (letter, digest, rest, body, seal) VALUES"


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


def _original(seq: int, known: Known, died: Message, letter: DeadLetter, sealing: Sealing) -> Row:
    rest = pack_rest(replace(letter, message=died))
    seal = sealing.message(known.head, known.digest, rest)
    return seq, known.digest, rest, died.body, seal
