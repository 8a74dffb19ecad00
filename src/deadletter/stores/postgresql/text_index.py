"""
Error texts by their trigrams, so that a part of one is found without reading all.

The index only says which letters may match: `core.query` has the last word. It needs
no extension of the server: trigrams are numbers in an array. Filing a letter notes
that it is not indexed; it is indexed afterwards, a few at a time, and looked at itself
until then. Triggers take a text out when it changes or goes.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final
from zlib import crc32

from deadletter.core.query.filters import Hint, trigrams
from deadletter.core.text import shown

from .database import Connection

MOST: Final = 200  # letters indexed at once
MOST_TEXT: Final = 100_000  # characters of their texts

# Those that somebody else indexes are left to them.
_NEXT: Final = """
SELECT u.ctid, u.letter, length(l.error_text)
FROM (SELECT ctid, letter FROM deadletter.letters_unindexed
      LIMIT $1 FOR UPDATE SKIP LOCKED) u
LEFT JOIN deadletter.letters l ON l.seq = u.letter
"""
# Locked: who purges a letter meanwhile waits, and takes its trigrams out, too.
_TEXTS: Final = """
SELECT seq, error_text FROM deadletter.letters WHERE seq = ANY($1) FOR KEY SHARE
"""
_ADD: Final = """
INSERT INTO deadletter.letter_trigrams (letter, trigrams) VALUES ($1, $2)
ON CONFLICT (letter) DO UPDATE SET trigrams = excluded.trigrams
"""
_ADDED: Final = "DELETE FROM deadletter.letters_unindexed WHERE ctid = ANY($1::tid[])"
_MATCHING: Final = """
SELECT letter FROM (SELECT letter FROM deadletter.letter_trigrams
    WHERE {} LIMIT $1) may_match
"""
_BODILESS: Final = """
SELECT letter FROM (SELECT letter FROM deadletter.letter_trigrams
    WHERE body IS NULL LIMIT $1) bodiless
"""
_UNKNOWN: Final = """
SELECT letter FROM (SELECT letter FROM deadletter.letters_unindexed LIMIT $1) unknown
"""
# Elsewhere plans go by plain indexes only; this one is of another kind.
_BY_BITMAP: Final = "SET LOCAL enable_bitmapscan = on"
_AS_BEFORE: Final = "SET LOCAL enable_bitmapscan = off"


async def index_some(connection: Connection) -> int:
    """Index the next letters; how many there were."""
    rows = await connection.fetch(_NEXT, MOST)
    totals = accumulate(n or 0 for _, _, n in rows)
    pairs = zip(rows, totals, strict=True)
    some = [row for at, (row, total) in enumerate(pairs) if not at or total <= MOST_TEXT]
    texts = await connection.fetch(_TEXTS, list({letter for _, letter, _ in some}))
    found = await asyncio.to_thread(_numbered, texts)
    await connection.executemany(_ADD, found)
    await connection.execute(_ADDED, [place for place, _, _ in some])
    return len(some)


async def candidates(connection: Connection, hints: Sequence[Hint], most: int) -> list[int] | None:
    """
    The numbers of letters of which one of the hints may be true.

    Those that are not indexed are among them. None if there are more than `most`.
    """
    # One part for each column, so that each goes by the index of its own.
    parts = [_UNKNOWN]
    values: list[list[int]] = []
    for column, in_body in (("trigrams", False), ("body", True)):
        asked = [numbers(hint.grams) for hint in hints if hint.in_body is in_body]
        if asked:
            places = range(len(values) + 2, len(values) + 2 + len(asked))
            where = " OR ".join(f"{column} @> ${n}::integer[]" for n in places)
            parts.append(_MATCHING.format(where))
            parts += [_BODILESS] * in_body
            values += asked
    await connection.execute(_BY_BITMAP)
    rows = await connection.fetch(" UNION ".join(parts), most + 1, *values)
    await connection.execute(_AS_BEFORE)
    return None if len(rows) > most else [letter for (letter,) in rows]


def numbers(grams: Iterable[str]) -> list[int]:
    """Trigrams as numbers; that two share one does no harm."""
    encoded = (gram.encode("utf-8", "surrogatepass") for gram in grams)
    return sorted({crc32(gram) - (1 << 31) for gram in encoded})


def _numbered(texts: Iterable[Sequence[Any]]) -> list[tuple[int, list[int]]]:
    return [(seq, numbers(trigrams(shown(text)))) for seq, text in texts]
