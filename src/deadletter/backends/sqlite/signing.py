"""The key that all processes which open the file sign with."""

import sqlite3


def kept(connection: sqlite3.Connection) -> bytes | None:
    """Return the key; None when nobody has made one yet."""
    row = connection.execute("SELECT key FROM signing_key").fetchone()
    return None if row is None else bytes(row[0])


def keep(connection: sqlite3.Connection, new: bytes) -> bytes:
    """Keep a new key unless there is one, and return the one that is kept."""
    connection.execute(
        "INSERT INTO signing_key (one, key) VALUES (1, ?) ON CONFLICT DO NOTHING",
        (new,),
    )
    return kept(connection) or new
