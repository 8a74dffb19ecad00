"""Presence of workers in a SQLite file."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.presence import FORGOTTEN, WorkerSeen, WorkerSign, decode_sign, encode_sign

from .sql import micros, when

_OLD: Final = round(FORGOTTEN * 1_000_000)  # microseconds; a clock may have been set back
_NOTE: Final = """
INSERT INTO workers (id, name, started_at, seen_at, sign) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, sign = excluded.sign
"""
_FORGET: Final = "DELETE FROM workers WHERE abs(? - seen_at) >= ?"
_LEAVE: Final = "DELETE FROM workers WHERE id = ?"
_SEEN: Final = """
SELECT sign, started_at, seen_at FROM workers WHERE abs(? - seen_at) < ? ORDER BY name, id
"""


def note(connection: sqlite3.Connection, signs: Sequence[WorkerSign], now: datetime) -> None:
    """Write signs, and forget workers that have been silent for long."""
    at = micros(now)
    rows = [(sign.id, sign.name, at, at, encode_sign(sign)) for sign in signs]
    connection.executemany(_NOTE, rows)
    connection.execute(_FORGET, (at, _OLD))


def leave(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Forget workers that have ended."""
    connection.executemany(_LEAVE, [(id_,) for id_ in ids])


def seen(connection: sqlite3.Connection, now: datetime) -> list[WorkerSeen]:
    """Return workers that are not forgotten, by name."""
    return [
        WorkerSeen(
            sign=decode_sign(sign),
            started_at=when(started_at),
            seen_at=when(seen_at),
            silent_for=max((now - when(seen_at)).total_seconds(), 0.0),
        )
        for sign, started_at, seen_at in connection.execute(_SEEN, (micros(now), _OLD))
    ]
