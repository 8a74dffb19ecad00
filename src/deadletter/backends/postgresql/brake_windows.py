"""When brakes were open, and who said to go on."""

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
from deadletter.core.escaping import stored
from deadletter.core.letter import By

from .audit import append
from .pool import Connection

_SAVE: Final = """
INSERT INTO deadletter.brake_windows AS kept (id, mailbox, is_closed, document)
VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET
    is_closed = excluded.is_closed, document = excluded.document
RETURNING kept.release
"""
_FORGET: Final = """
DELETE FROM deadletter.brake_windows WHERE id <= (
    SELECT id FROM deadletter.brake_windows ORDER BY id DESC LIMIT 1 OFFSET $1)
"""
_LATEST: Final = """
SELECT document, release FROM deadletter.brake_windows
WHERE $1::text IS NULL OR mailbox = $1 ORDER BY id DESC LIMIT $2
"""
_RELEASE: Final = """
UPDATE deadletter.brake_windows SET release = $1
WHERE mailbox = $2 AND NOT is_closed RETURNING id
"""


async def save(connection: Connection, window: BrakeWindow, keep: int) -> BrakeWindow:
    """Write a window, new or again; return it with its release."""
    document, is_closed = encode(window), window.closed_at is not None
    (row,) = await connection.fetch(
        _SAVE, window.id, stored(window.mailbox), is_closed, document
    )
    await connection.execute(_FORGET, keep)
    return decode(document, row["release"])


async def latest(
    connection: Connection, mailbox: str | None, limit: int
) -> Sequence[BrakeWindow]:
    """Windows of all mailboxes or one, the latest first."""
    rows = await connection.fetch(_LATEST, stored(mailbox), limit)
    return [decode(row["document"], row["release"]) for row in rows]


async def release(connection: Connection, mailbox: str, by: By, at: datetime) -> int:
    """Release a mailbox's windows that are not closed; how many."""
    given = encode_release(Release(by.actor, by.reason, at))
    rows = await connection.fetch(_RELEASE, given, stored(mailbox))
    if rows:
        await append(connection, [act("release-brake", mailbox, by, at=at)])
    return len(rows)
