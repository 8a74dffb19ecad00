"""Letters that get another message; what died is kept beside it."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import Known
from deadletter.core.packing import pack_rest, unpack_message
from deadletter.core.text import stored

from .database import Connection, sealing_of
from .letters_rows import CONTENTS, HEAD, WHOLE, check_body, whole

GET: Final = f"""
SELECT {HEAD}, {CONTENTS}, o.digest, o.rest, o.body
FROM {WHOLE} LEFT JOIN deadletter.letter_originals o ON o.letter = l.seq
WHERE l.id = ANY($1)
"""  # noqa: S608 -- made of constants
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


async def keep_originals(
    connection: Connection, letters: Sequence[tuple[Known, DeadLetter]]
) -> None:
    """What died, of new letters that were edited elsewhere."""
    for known, letter in letters:
        if letter.original is not None:
            rest = pack_rest(replace(letter, message=letter.original))
            seal = sealing_of(connection).message(known.head, known.digest, rest)
            body = letter.original.body
            await connection.execute(_KEEP, stored(known.head.id), known.digest, rest, body, seal)
