"""
Index of bodies by trigrams, if an office wants one: up to a size, see `text_index`.

It works like the index of error texts. Bodies that are too large, have changed since or
are not indexed yet are always read. The index has its own copy of the texts: a body need
not be text, and FTS5 must know a text to remove it.
"""

import sqlite3
from typing import Final

from deadletter.core.query.filters import body_text

from .sql import fetch, numbers
from .text_index import first_rows, is_untidy, tidy_table

MOST: Final = 500  # letters indexed at once
MOST_BYTES: Final = 100_000  # of their bodies

_TABLE: Final = """
CREATE VIRTUAL TABLE letter_bodies USING fts5(
    body, tokenize='trigram', detail=none, columnsize=0)
"""
_WHEN_DELETED: Final = """
CREATE TRIGGER letter_body_deleted AFTER DELETE ON letter_contents
WHEN old.letter <= (SELECT indexed_up_to FROM body_index)
BEGIN
    DELETE FROM letter_bodies WHERE rowid = old.letter;
    DELETE FROM bodies_unindexed WHERE letter = old.letter;
    UPDATE body_index SET removed = removed + 1;
END
"""
_WHEN_CHANGED: Final = """
CREATE TRIGGER letter_body_changed AFTER UPDATE OF body ON letter_contents
WHEN old.body IS NOT new.body
    AND old.letter <= (SELECT indexed_up_to FROM body_index)
BEGIN
    DELETE FROM letter_bodies WHERE rowid = old.letter;
    INSERT OR REPLACE INTO bodies_unindexed (letter, changed) VALUES (old.letter, 1);
    UPDATE body_index SET removed = removed + 1;
END
"""
_SWITCHED_ON: Final = (_TABLE, _WHEN_DELETED, _WHEN_CHANGED)
_SWITCHED_OFF: Final = (
    "DROP TRIGGER IF EXISTS letter_body_deleted",
    "DROP TRIGGER IF EXISTS letter_body_changed",
    "DROP TABLE IF EXISTS letter_bodies",
    "DELETE FROM bodies_unindexed",
)
_LARGEST: Final = "SELECT largest FROM body_index"
_SET: Final = "UPDATE body_index SET largest = ?, indexed_up_to = 0, removed = 0"
_INDEXED: Final = "UPDATE body_index SET indexed_up_to = ?"

_NEXT: Final = """
SELECT letter, length(body) AS n FROM letter_contents
WHERE letter > (SELECT indexed_up_to FROM body_index) ORDER BY letter LIMIT ?
"""
_CHANGED: Final = """
SELECT u.letter, length(body) AS n FROM bodies_unindexed u
CROSS JOIN letter_contents c ON c.letter = u.letter
WHERE changed = 1 ORDER BY u.letter LIMIT ?
"""
_BODIES: Final = """
SELECT letter, body FROM json_each(?) CROSS JOIN letter_contents ON letter = value
"""
_ADD: Final = "INSERT INTO letter_bodies (rowid, body) VALUES (?, ?)"
_ADDED: Final = """
DELETE FROM bodies_unindexed WHERE letter IN (SELECT value FROM json_each(?))
"""
_TOO_LARGE: Final = """
INSERT OR REPLACE INTO bodies_unindexed (letter, changed)
SELECT value, 0 FROM json_each(?)
"""
_MATCHING: Final = """
SELECT rowid AS seq FROM letter_bodies WHERE letter_bodies MATCH ? LIMIT ?
"""
_BEHIND: Final = """
SELECT letter AS seq FROM letter_contents
WHERE letter > (SELECT indexed_up_to FROM body_index) LIMIT ?
"""
_UNINDEXED: Final = "SELECT letter AS seq FROM bodies_unindexed LIMIT ?"

SELECTS: Final = (_MATCHING, _BEHIND, _UNINDEXED)
"""Letters whose bodies may match, those behind the index, those beside it."""


def largest(connection: sqlite3.Connection) -> int:
    """Return the size of the largest body that is indexed; 0 if none is."""
    (found,) = connection.execute(_LARGEST).fetchone()
    return int(found)


def index_up_to(connection: sqlite3.Connection, size: int) -> None:
    """Index bodies of up to `size` bytes from now on, 0 for none; start over."""
    if size == largest(connection):
        return
    for statement in (*_SWITCHED_OFF, *(_SWITCHED_ON if size else ())):
        connection.execute(statement)
    connection.execute(_SET, (size,))


def has_more(connection: sqlite3.Connection) -> bool:
    """Return whether there are bodies to index, or traces to remove."""
    if not largest(connection):
        return False
    waiting = (fetch(connection, "letter, n", one, (1,)) for one in (_NEXT, _CHANGED))
    return is_untidy(connection, "body_index") or any(waiting)


def index_some(connection: sqlite3.Connection) -> int:
    """Index the next bodies; return their number."""
    size = largest(connection)
    if not size:
        return 0
    new = _add(connection, _NEXT, size)
    if new:
        connection.execute(_INDEXED, (new[-1],))
        return len(new)
    return len(_add(connection, _CHANGED, size))


def tidy_some(connection: sqlite3.Connection) -> bool:
    """Rewrite a part of the index without removed bodies; return whether there is more."""
    return largest(connection) > 0 and tidy_table(connection, "letter_bodies", "body_index")


def _add(connection: sqlite3.Connection, select: str, size: int) -> list[int]:
    rows = fetch(connection, "letter, n", select, (MOST,))
    some = first_rows(rows, (n if n <= size else 0 for _, n in rows), MOST_BYTES)
    fitting = numbers(seq for seq, n in some if n <= size)
    bodies = connection.execute(_BODIES, (fitting,)).fetchall()
    # FTS5 would end a text at NUL.
    texts = [(seq, body_text(body).replace("\0", " ")) for seq, body in bodies]
    connection.executemany(_ADD, texts)
    connection.execute(_ADDED, (fitting,))
    connection.execute(_TOO_LARGE, (numbers(seq for seq, n in some if n > size),))
    return [seq for seq, _ in some]
