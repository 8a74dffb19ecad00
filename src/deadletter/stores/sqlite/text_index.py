"""
Error texts by their trigrams, so that a part of one is found without reading all.

The index only says which letters may match: `core.query` has the last word. Filing a
letter does not touch it. Letters are indexed afterwards, a few at a time, in the order
of their numbers; those behind `indexed_up_to`, and those whose text has changed since,
are looked at themselves. A text leaves the index in the transaction that changes or
deletes it: triggers see to that, whoever does it.
"""

import sqlite3
from functools import cache
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.query.filters import Hint

from . import body_index, trigram_tables
from .sql import fetch, stored
from .trigram_tables import first_rows, is_untidy, matching

MOST: Final = 500  # letters indexed at once
MOST_TEXT: Final = 100_000  # characters of their texts

_IS_THERE: Final = "SELECT 1 FROM sqlite_master WHERE name = 'letter_texts'"
# No positions: letters are judged anyway, and so it takes half the space.
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
_SELECTS: Final = (_MATCHING, _BEHIND, _UNINDEXED)


@cache
def is_possible() -> bool:
    """Whether this SQLite can index texts."""
    connection = sqlite3.connect(":memory:")
    try:
        options = connection.execute("PRAGMA compile_options").fetchall()
    finally:
        connection.close()
    return ("ENABLE_FTS5",) in options


def set_up(connection: sqlite3.Connection) -> None:
    """Make the index if it can be made and is missing; refuse a file we would break."""
    is_there = connection.execute(_IS_THERE).fetchone() is not None
    if is_there and not is_possible():
        raise ConfigError(
            "its error texts are indexed, which takes a SQLite with FTS5, and this"
            " Python has one without: use another Python"
        )
    if not is_there and is_possible():
        for statement in (_TABLE, _WHEN_DELETED, _WHEN_CHANGED):
            connection.execute(statement)


def lacks(connection: sqlite3.Connection) -> bool:
    """Whether the index has to be made, or the file refused, see `set_up`."""
    return (connection.execute(_IS_THERE).fetchone() is not None) != is_possible()


def has_more(connection: sqlite3.Connection) -> bool:
    """Return whether there are texts to index, or traces to remove."""
    if not is_possible():
        return False
    waiting = (fetch(connection, "seq, n", one, (1,)) for one in (_NEXT, _CHANGED))
    return is_untidy(connection, "text_index") or any(waiting)


def index_some(connection: sqlite3.Connection) -> int:
    """Index the next letters; how many there were."""
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
    """Rewrite some of the index without what was taken out; whether there is more."""
    return is_possible() and trigram_tables.tidy_some(connection, "letter_texts", "text_index")


def candidates(connection: sqlite3.Connection, hints: list[Hint], most: int) -> list[int] | None:
    """
    The numbers of letters of which one of the hints may be true.

    Those that are not indexed are among them. None if there are more than `most`.
    """
    is_odd = any(isinstance(stored(gram), bytes) for one in hints for gram in one.grams)
    if is_odd or not is_possible():  # odd text is not in the index
        return None
    found: set[int] = set()
    for selects, in_body in ((_SELECTS, False), (body_index.SELECTS, True)):
        asked = [hint.grams for hint in hints if hint.in_body is in_body]
        some = matching(connection, selects, asked, most) if asked else []
        if some is None:
            return None
        found.update(some)
    return None if len(found) > most else sorted(found)


def _some(connection: sqlite3.Connection, select: str) -> list[int]:
    """The first of these letters whose texts are not too long together, or one."""
    rows = fetch(connection, "seq, n", select, (MOST,))
    return [seq for seq, _ in first_rows(rows, (n for _, n in rows), MOST_TEXT)]
