"""Presence of workers in a PostgreSQL database, by the clock of its server."""

from collections.abc import Sequence
from typing import Final

from deadletter.core.presence import FORGOTTEN, WorkerSeen, WorkerSign, decode_sign, encode_sign

from .database import Connection

_NOTE: Final = """
INSERT INTO deadletter.workers AS w (id, name, started_at, seen_at, sign)
SELECT id, name, deadletter.clock(), deadletter.clock(), sign
FROM unnest($1::text[], $2::text[], $3::bytea[]) AS t (id, name, sign)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, sign = excluded.sign
"""
_OLD: Final = f"abs(extract(epoch FROM deadletter.clock() - seen_at)) >= {FORGOTTEN}"
_FORGET: Final = f"""
DELETE FROM deadletter.workers WHERE id IN (
    SELECT id FROM deadletter.workers WHERE {_OLD} FOR UPDATE SKIP LOCKED)
"""  # noqa: S608 -- made of constants
_LEAVE: Final = "DELETE FROM deadletter.workers WHERE id = ANY($1::text[])"
_SEEN: Final = f"""
SELECT sign, started_at, seen_at,
    extract(epoch FROM deadletter.clock() - seen_at)::double precision
FROM deadletter.workers WHERE NOT ({_OLD}) ORDER BY name COLLATE "C", id COLLATE "C"
"""  # noqa: S608 -- made of constants


async def note(connection: Connection, signs: Sequence[WorkerSign]) -> None:
    """Write signs, and forget workers that have been silent for long."""
    # In the order of their ids, so that two writers never wait for each other.
    ordered = sorted(signs, key=lambda sign: sign.id)
    columns = [[s.id for s in ordered], [s.name for s in ordered], list(map(encode_sign, ordered))]
    await connection.execute(_NOTE, *columns)
    await connection.execute(_FORGET)


async def leave(connection: Connection, ids: Sequence[str]) -> None:
    """Forget workers that have ended."""
    await connection.execute(_LEAVE, list(ids))


async def seen(connection: Connection) -> list[WorkerSeen]:
    """Return workers that are not forgotten, by name."""
    return [
        WorkerSeen(
            sign=decode_sign(sign),
            started_at=started_at,
            seen_at=seen_at,
            silent_for=max(silent_for, 0.0),
        )
        for sign, started_at, seen_at, silent_for in await connection.fetch(_SEEN)
    ]
