"""When brakes were open, and who said to go on."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.audit import act
from deadletter.core.brake_window import (
    BrakeWindow,
    Release,
    decode,
    encode,
    encode_release,
)
from deadletter.core.letter import By

from .audit import append
from .sql import stored

_SAVE: Final = """
INSERT INTO brake_windows (id, mailbox, is_closed, document) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    is_closed = excluded.is_closed, document = excluded.document
RETURNING release
"""
_FORGET: Final = """
DELETE FROM brake_windows WHERE id <= (
    SELECT id FROM brake_windows ORDER BY id DESC LIMIT 1 OFFSET ?)
"""
_LATEST: Final = """
SELECT document, release FROM brake_windows
WHERE ?1 IS NULL OR mailbox = ?1 ORDER BY id DESC LIMIT ?2
"""
_RELEASE: Final = """
UPDATE brake_windows SET release = ? WHERE mailbox = ? AND NOT is_closed
"""


def save(connection: sqlite3.Connection, window: BrakeWindow, keep: int) -> BrakeWindow:
    """Write a window, new or again; return it with its release."""
    is_closed = window.closed_at is not None
    row = (window.id, stored(window.mailbox), is_closed, encode(window))
    (release,) = connection.execute(_SAVE, row).fetchone()
    connection.execute(_FORGET, (keep,))
    return decode(encode(window), release)


def latest(
    connection: sqlite3.Connection, mailbox: str | None, limit: int
) -> Sequence[BrakeWindow]:
    """Windows of all mailboxes or one, the latest first."""
    rows = connection.execute(_LATEST, (stored(mailbox), limit))
    return [decode(document, release) for document, release in rows]


def release(connection: sqlite3.Connection, mailbox: str, by: By, at: datetime) -> int:
    """Release a mailbox's windows that are not closed; how many."""
    given = (encode_release(Release(by.actor, by.reason, at)), stored(mailbox))
    count = connection.execute(_RELEASE, given).rowcount
    if count:
        append(connection, [act("release-brake", mailbox, by, at=at)])
    return count
