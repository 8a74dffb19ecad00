"""The key that all processes of this office sign with."""

from typing import Final

from .pool import Connection

_KEPT: Final = "SELECT key FROM deadletter.signing_key"
_KEEP: Final = """
INSERT INTO deadletter.signing_key (one, key) VALUES (1, $1) ON CONFLICT DO NOTHING
"""


async def kept(connection: Connection) -> bytes | None:
    """Return the key; None when nobody has made one yet."""
    rows = await connection.fetch(_KEPT)
    return bytes(rows[0]["key"]) if rows else None


async def keep(connection: Connection, new: bytes) -> bytes:
    """Keep a new key unless there is one, and return the one that is kept."""
    await connection.execute(_KEEP, new)
    return await kept(connection) or new
