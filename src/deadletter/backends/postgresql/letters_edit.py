"""Letters that get another message; what died is kept beside it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from deadletter.core.audit import act
from deadletter.core.editing import Edit, check_revision, edited, no_letter
from deadletter.core.escaping import stored
from deadletter.core.ids import body_digest
from deadletter.core.keeping import Known
from deadletter.core.letter import DeadLetter
from deadletter.core.packing import pack_rest, unpack_message
from deadletter.core.seals import EDITED

from .audit import append
from .letters_rows import CONTENTS, HEAD, WHOLE, check_body, for_copies, whole
from .pool import Connection, sealing_of

GET: Final = f"""
SELECT {HEAD}, {CONTENTS}, o.digest, o.rest, o.body
FROM {WHOLE} LEFT JOIN deadletter.letter_originals o ON o.letter = l.seq
WHERE l.id = ANY($1)
"""  # noqa: S608 -- made of constants
_LOCK: Final = f"""
SELECT {HEAD}, {CONTENTS} FROM {WHOLE} WHERE l.id = $1 FOR UPDATE OF l, m, c
"""  # noqa: S608 -- made of constants
_SET_ASIDE: Final = """
INSERT INTO deadletter.letter_originals
SELECT letter, digest, rest, body, seal
FROM deadletter.letter_contents WHERE letter = $1
ON CONFLICT DO NOTHING
"""
_PUT: Final = """
WITH put AS (
    UPDATE deadletter.letter_contents
    SET digest = $2, rest = $3, body = $4, outgoing = $8, sent_at = $9,
        expires_at = $10, mark = $11, mark_key = $12, seal = $13
    WHERE letter = $1
), marked AS (
    UPDATE deadletter.letter_marks SET revision = $7 WHERE letter = $1
)
UPDATE deadletter.letters SET key = $5, size = $6 WHERE seq = $1
"""
_KEEP: Final = """
INSERT INTO deadletter.letter_originals (letter, digest, rest, body, seal)
SELECT seq, $2, $3, $4, $5 FROM deadletter.letters WHERE id = $1
"""


def with_original(row: Sequence[Any]) -> DeadLetter:
    """The letter in a row of `GET`."""
    letter = whole(row)
    digest, rest, body = row[-3:]
    if digest is None:
        return letter
    check_body(letter.id, body, digest)
    return replace(letter, original=unpack_message(rest, body))


async def edit(connection: Connection, edit: Edit, now: datetime) -> int:
    """Put another message into a letter; its new revision."""
    row = await connection.fetchrow(_LOCK, stored(edit.id))
    if row is None:
        raise no_letter(edit.id)
    letter, seq = whole(row), row[0]
    check_revision(letter.head, edit.revision)
    head, detail = edited(letter.head, letter.message, edit.message)
    await connection.execute(_SET_ASIDE, seq)
    digest = body_digest(edit.message.body)
    rest = pack_rest(replace(letter, message=edit.message))
    sealing = sealing_of(connection)
    await connection.execute(
        _PUT,
        seq,
        digest,
        rest,
        edit.message.body,
        stored(head.key),
        head.size,
        head.revision,
        *for_copies(edit.message, sealing),
        sealing.message(head, digest, rest, EDITED),
    )
    await append(connection, [act("edit", edit.id, edit.by, at=now, detail=detail)])
    return head.revision


async def keep_originals(
    connection: Connection, letters: Sequence[tuple[Known, DeadLetter]]
) -> None:
    """What died, of new letters that were edited elsewhere."""
    for known, letter in letters:
        if letter.original is not None:
            rest = pack_rest(replace(letter, message=letter.original))
            seal = sealing_of(connection).message(known.head, known.digest, rest)
            body = letter.original.body
            await connection.execute(
                _KEEP, stored(known.head.id), known.digest, rest, body, seal
            )
