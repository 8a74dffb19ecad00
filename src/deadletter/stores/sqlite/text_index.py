"""
Index of error texts by trigrams: finds a part of a text without reading all letters.

The index names letters that may match; `core.query` decides. Filing a letter does not
change the index. Letters are indexed afterwards, a few at a time, in the order of their
numbers. Letters behind `indexed_up_to`, and those whose text has changed since, are
always read. Triggers remove a text in the transaction that changes or deletes it.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Final

from deadletter.core.errors import ConfigError

from .sql import Row, fetch

MOST: Final = 500  # letters indexed at once
MOST_TEXT: Final = 100_000  # characters of their texts

_IS_THERE: Final = "SELECT 1 FROM sqlite_master WHERE name = 'letter_texts'"
# No positions: every match is read anyway, and the index takes half the space.
_TABLE: Final = """
CREATE VIRTUAL TABLE letter_texts USING fts5(
    error_text, content='letters', content_rowid='seq',
    tokenize='trigram', detail=none, columnsize=0)
"""
_TAKE_OUT: Final = """
    INSERT INTO letter_texts (letter_texts, rowid, error_text)
    SELECT 'delete', old.seq, old.error_text
    WHERE NOT EXISTS (SELECT 1 FROM letters_unindexed WHERE letter = old.seq);
    UPDATE text_index SET removed = removed + 1;
"""
_WHEN_DELETED: Final = f"""
CREATE TRIGGER letter_text_deleted AFTER DELETE ON letters
WHEN old.seq <= (SELECT indexed_up_to FROM text_index)
BEGIN
    {_TAKE_OUT}
    DELETE FROM letters_unindexed WHERE letter = old.seq;
END
"""  # noqa: S608 -- made of constants
_WHEN_CHANGED: Final = f"""
CREATE TRIGGER letter_text_changed AFTER UPDATE OF error_text ON letters
WHEN old.error_text IS NOT new.error_text
    AND old.seq <= (SELECT indexed_up_to FROM text_index)
BEGIN
    {_TAKE_OUT}
    INSERT OR IGNORE INTO letters_unindexed (letter) VALUES (old.seq);
END
"""  # noqa: S608 -- made of constants

_NEXT: Final = """
SELECT seq, length(error_text) AS n FROM letters
WHERE seq > (SELECT indexed_up_to FROM text_index) ORDER BY seq LIMIT ?
"""
_ADD: Final = """
INSERT INTO letter_texts (rowid, error_text)
SELECT seq, error_text FROM letters
WHERE seq > (SELECT indexed_up_to FROM text_index) AND seq <= ?
    AND typeof(error_text) = 'text'
"""
_ADD_ODD: Final = """
INSERT OR IGNORE INTO letters_unindexed (letter)
SELECT seq FROM letters
WHERE seq > (SELECT indexed_up_to FROM text_index) AND seq <= ?
    AND typeof(error_text) <> 'text'
"""
_INDEXED: Final = "UPDATE text_index SET indexed_up_to = ?"
_CHANGED: Final = """
SELECT seq, length(error_text) AS n FROM letters_unindexed CROSS JOIN letters
ON seq = letter WHERE typeof(error_text) = 'text' ORDER BY seq LIMIT ?
"""
_ADD_CHANGED: Final = """
INSERT INTO letter_texts (rowid, error_text)
SELECT seq, error_text FROM letters_unindexed CROSS JOIN letters ON seq = letter
WHERE typeof(error_text) = 'text' AND seq <= ?
"""
_ADDED: Final = """
DELETE FROM letters_unindexed WHERE letter <= ?
AND (SELECT typeof(error_text) FROM letters WHERE seq = letter) = 'text'
"""
_MATCHING: Final = """
SELECT rowid AS seq FROM letter_texts WHERE letter_texts MATCH ? LIMIT ?
"""
_BEHIND: Final = """
SELECT seq FROM letters NOT INDEXED
WHERE seq > (SELECT indexed_up_to FROM text_index) LIMIT ?
"""
_UNINDEXED: Final = "SELECT letter AS seq FROM letters_unindexed LIMIT ?"
SELECTS: Final = (_MATCHING, _BEHIND, _UNINDEXED)
"""Letters whose texts may match, those behind the index, those beside it."""

_TIDIED: Final = 200  # pages rewritten at once
_REMOVED: Final = "SELECT removed FROM {}"
_TIDY: Final = "INSERT INTO {0} ({0}, rank) VALUES ('merge', ?)"
_IS_TIDY: Final = "UPDATE {} SET removed = 0 WHERE removed = ?"


@cache
def is_possible() -> bool:
    """Return whether this SQLite can index texts."""
    connection = sqlite3.connect(":memory:")
    try:
        options = connection.execute("PRAGMA compile_options").fetchall()
    finally:
        connection.close()
    return ("ENABLE_FTS5",) in options


def set_up(connection: sqlite3.Connection) -> None:
    """Create the index if it is missing; raise ConfigError if this SQLite would break it."""
    is_there = connection.execute(_IS_THERE).fetchone() is not None
    if is_there and not is_possible():
        raise ConfigError(
            "the file has an index of error texts, which needs a SQLite with FTS5, and the"
            " one of this Python has none: use another Python"
        )
    if not is_there and is_possible():
        for statement in (_TABLE, _WHEN_DELETED, _WHEN_CHANGED):
            connection.execute(statement)


def lacks(connection: sqlite3.Connection) -> bool:
    """Return whether `set_up` has something to do."""
    return (connection.execute(_IS_THERE).fetchone() is not None) != is_possible()


def has_more(connection: sqlite3.Connection) -> bool:
    """Return whether there are texts to index, or traces to remove."""
    if not is_possible():
        return False
    waiting = (fetch(connection, "seq, n", one, (1,)) for one in (_NEXT, _CHANGED))
    return is_untidy(connection, "text_index") or any(waiting)


def index_some(connection: sqlite3.Connection) -> int:
    """Index the next letters; return their number."""
    if not is_possible():
        return 0
    new = _some(connection, _NEXT)
    if new:
        last = new[-1]
        connection.execute(_ADD, (last,))
        connection.execute(_ADD_ODD, (last,))
        connection.execute(_INDEXED, (last,))
        return len(new)
    changed = _some(connection, _CHANGED)
    if changed:
        connection.execute(_ADD_CHANGED, (changed[-1],))
        connection.execute(_ADDED, (changed[-1],))
    return len(changed)


def tidy_some(connection: sqlite3.Connection) -> bool:
    """Rewrite a part of the index without removed texts; return whether there is more."""
    return is_possible() and tidy_table(connection, "letter_texts", "text_index")


def _some(connection: sqlite3.Connection, select: str) -> list[int]:
    """Return the first letters whose texts are not too long together, or one letter."""
    rows = fetch(connection, "seq, n", select, (MOST,))
    return [seq for seq, _ in first_rows(rows, (n for _, n in rows), MOST_TEXT)]


# Parts that the index of bodies uses as well.


def first_rows(rows: Sequence[Row], sizes: Iterable[int], most: int) -> list[Row]:
    """Return the first rows whose sizes are at most `most` together, or one row."""
    totals = accumulate(sizes)
    return [
        row
        for at, (row, total) in enumerate(zip(rows, totals, strict=True))
        if not at or total <= most
    ]


def is_untidy(connection: sqlite3.Connection, stand: str) -> bool:
    """Return whether texts were removed since the index was tidied."""
    return bool(_removed(connection, stand))


def tidy_table(connection: sqlite3.Connection, table: str, stand: str) -> bool:
    """
    Rewrite a part of an index without removed texts; return whether there is more.

    `stand` is the table of one row with the state of the index.
    """
    removed = _removed(connection, stand)
    if not removed:
        return False
    before = connection.total_changes
    connection.execute(_TIDY.format(table), (-_TIDIED,))
    if connection.total_changes - before >= 2:  # the sign of FTS5 that there is more
        return True
    connection.execute(_IS_TIDY.format(stand), (removed,))
    return False


def matching(
    connection: sqlite3.Connection,
    selects: Sequence[str],
    alternatives: Iterable[Sequence[str]],
    most: int,
) -> list[int] | None:
    """
    Return the numbers of letters that may have all trigrams of one of the alternatives.

    `selects` are for letters in the index, then for letters that are not in it. Returns
    None if there are more than `most`.
    """
    match = " OR ".join(f"({' AND '.join(map(_quoted, grams))})" for grams in alternatives)
    found: list[int] = []
    for select, values in zip(selects, ([match], [], []), strict=True):
        rows = fetch(connection, "seq", select, [*values, most + 1])
        found += [seq for (seq,) in rows]
        if len(found) > most:
            return None
    return found


def _removed(connection: sqlite3.Connection, stand: str) -> int:
    (removed,) = connection.execute(_REMOVED.format(stand)).fetchone()
    return int(removed)


def _quoted(gram: str) -> str:
    escaped = gram.replace('"', '""')
    return f'"{escaped}"'
