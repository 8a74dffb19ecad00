"""Sums by identity: with which key each is made, and functions that SQL can call."""

import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from zlib import crc32

from deadletter.core.campaign import Outcome
from deadletter.core.escaping import shown
from deadletter.core.marks import MASK, NO_KEY, Marks, leaving
from deadletter.core.seals import PLAIN, Sealing

from .sql import numbers
from .sql import shown as plain

ADD: Final = f"& {MASK}"
"""Behind the sum of two sums."""

_OF_MAILBOX: Final = "SELECT marks_key FROM mailboxes WHERE id = ?"
_OF_OFFICE: Final = "SELECT marks_key, kept = 0 AND deaths = 0 FROM office"
_OF_CAMPAIGNS: Final = """
SELECT campaign, outcome, marks_key FROM campaign_outcomes
WHERE campaign IN (SELECT value FROM json_each(?))
"""
_BEGIN: Final = "UPDATE office SET marks_key = ?"


class OfficeConnection(sqlite3.Connection):
    """A connection that knows what letters, audit and sums are sealed with."""

    sealing: Sealing = PLAIN


def sealing_of(connection: sqlite3.Connection) -> Sealing:
    """What letters, the audit and sums are sealed with on this connection."""
    return connection.sealing if isinstance(connection, OfficeConnection) else PLAIN


def mailbox_marks(connection: sqlite3.Connection, mailbox: int) -> Marks:
    """Return the marks that the sums of a mailbox are made of."""
    ((key_id,),) = connection.execute(_OF_MAILBOX, (mailbox,)).fetchall()
    return sealing_of(connection).marks(key_id)


def office_marks(connection: sqlite3.Connection) -> Marks:
    """Return the marks that the sums of letters are made of, to add to these."""
    ((key_id, is_empty),) = connection.execute(_OF_OFFICE).fetchall()
    sealing = sealing_of(connection)
    if is_empty and key_id != sealing.key_id:
        key_id = sealing.key_id
        connection.execute(_BEGIN, (key_id,))
    return sealing.marks(key_id)


def item_marks(
    connection: sqlite3.Connection, campaigns: Iterable[int]
) -> Callable[[int, Outcome], Marks]:
    """Return what says of which marks the sums of campaigns are made."""
    sealing = sealing_of(connection)
    rows = connection.execute(_OF_CAMPAIGNS, (numbers(campaigns),))
    known = {(seq, outcome): sealing.marks(key_id) for seq, outcome, key_id in rows}
    return lambda campaign, outcome: known.get((campaign, outcome), sealing.marks())


class _Sum:
    """A sum of marks that SQL makes."""

    def __init__(self, mark: Callable[..., int]) -> None:
        self._mark = mark
        self._sum = 0

    def step(self, *values: Any) -> None:
        """Add one row."""
        self._sum += self._mark(*values)

    def finalize(self) -> int:
        """The sum."""
        return self._sum & MASK


def teach(connection: sqlite3.Connection, sealing: Sealing) -> None:
    """Give a connection the functions that the sums are made with."""

    def text_mark(key_id: bytes, text: str | bytes, count: int) -> int:
        return sealing.marks(key_id).text(plain(text)) * count

    def message_mark(key_id: bytes, id_: str, body: bytes) -> int:
        return sealing.marks(key_id).message(shown(id_), body)

    def item_mark(key_id: bytes, campaign: int, letter: int, outcome: str) -> int:
        return sealing.marks(key_id).item(campaign, letter, outcome)

    # Without the id of a key, as the first migration of sums calls them: without a key.
    for name, arguments, mark in (
        ("text_marks", 2, partial(text_mark, NO_KEY)),
        ("text_marks", 3, text_mark),
        ("message_marks", 2, partial(message_mark, NO_KEY)),
        ("message_marks", 3, message_mark),
        ("item_marks", 4, item_mark),
    ):
        connection.create_aggregate(name, arguments, partial(_Sum, mark))
    connection.create_function("crc32", 1, crc32, deterministic=True)
    connection.create_function("fate_marks", 2, lambda fate, n: leaving(fate, n, 0))
