"""
Bodies by their trigrams, where an office wants that: up to a size, see `text_index`.

They stand beside the trigrams of the error text. A letter without is looked at itself:
its body is too large, has changed, or its turn has not come.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

from deadletter.core.query.filters import body_text, trigrams

from .database import Connection
from .text_index import MOST, numbers

MOST_BYTES: Final = 100_000  # of bodies indexed at once
_TAKEN_OUT: Final = 1_000  # letters at once

# One process at a time; the others have nothing to do meanwhile.
_ALONE: Final = "SELECT pg_try_advisory_xact_lock(hashtext('deadletter.body_index'))"
_LARGEST: Final = "SELECT largest FROM deadletter.body_index"
_SET: Final = """
INSERT INTO deadletter.body_index (id, largest) VALUES (1, $1)
ON CONFLICT (id) DO UPDATE SET largest = excluded.largest
"""
_NEXT: Final = """
(SELECT letter FROM deadletter.letter_trigrams WHERE body_limit < $1 LIMIT $2)
UNION ALL
(SELECT letter FROM deadletter.letter_trigrams WHERE body_limit > $1 LIMIT $2)
LIMIT $2
"""
# Locked: who edits or purges a letter meanwhile waits, and takes the trigrams out.
_SIZES: Final = """
SELECT letter, octet_length(body) FROM deadletter.letter_contents
WHERE letter = ANY($1) ORDER BY letter FOR SHARE
"""
_BODIES: Final = """
SELECT letter, body FROM deadletter.letter_contents WHERE letter = ANY($1)
"""
_ADD: Final = """
UPDATE deadletter.letter_trigrams SET body = $2, body_limit = $3 WHERE letter = $1
"""
_TAKE_OUT: Final = """
UPDATE deadletter.letter_trigrams SET body = NULL, body_limit = $2
WHERE letter = ANY($1)
"""


async def largest(connection: Connection) -> int:
    """Return the size of the largest body that is indexed; 0 if none is."""
    return int(await connection.fetchval(_LARGEST) or 0)


async def index_up_to(connection: Connection, size: int) -> None:
    """Index bodies of up to `size` bytes from now on, 0 for none."""
    await connection.execute(_SET, size)


async def index_some(connection: Connection) -> int:
    """Index the next bodies, or take some out; return how many there were."""
    if not await connection.fetchval(_ALONE):
        return 0
    size = await largest(connection)
    most = MOST if size else _TAKEN_OUT
    letters = [one for (one,) in await connection.fetch(_NEXT, size, most)]
    if not size:
        await connection.execute(_TAKE_OUT, letters, size)
        return len(letters)
    some = _first(await connection.fetch(_SIZES, letters), size)
    fitting = [letter for letter, n in some if n <= size]
    bodies = await connection.fetch(_BODIES, fitting)
    added = await asyncio.to_thread(_numbered, bodies)
    await connection.executemany(_ADD, [(*one, size) for one in added])
    too_large = [letter for letter, n in some if n > size]
    await connection.execute(_TAKE_OUT, too_large, size)
    return len(some)


def _first(rows: Sequence[Any], size: int) -> list[tuple[int, int]]:
    totals = accumulate(n if n <= size else 0 for _, n in rows)
    pairs = zip(rows, totals, strict=True)
    return [
        (letter, n)
        for at, ((letter, n), total) in enumerate(pairs)
        if not at or total <= MOST_BYTES
    ]


def _numbered(bodies: Iterable[Sequence[Any]]) -> list[tuple[int, list[int]]]:
    return [(letter, numbers(trigrams(body_text(body)))) for letter, body in bodies]
