"""Presence of workers in memory."""

from collections.abc import Sequence
from datetime import datetime

from deadletter.core.presence import FORGOTTEN, WorkerSeen, WorkerSign


class Signs:
    """The last sign of each worker."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[WorkerSign, datetime, datetime]] = {}

    def note(self, signs: Sequence[WorkerSign], now: datetime) -> None:
        """Write signs, and forget workers that have been silent for long."""
        for sign in signs:
            _, started_at, _ = self._rows.get(sign.id, (sign, now, now))
            self._rows[sign.id] = sign, started_at, now
        self._rows = {id_: row for id_, row in self._rows.items() if not _is_old(row[2], now)}

    def leave(self, ids: Sequence[str]) -> None:
        """Forget workers that have ended."""
        for id_ in ids:
            self._rows.pop(id_, None)

    def seen(self, now: datetime) -> list[WorkerSeen]:
        """Return workers that are not forgotten, by name."""
        there = [
            WorkerSeen(
                sign=sign,
                started_at=started_at,
                seen_at=seen_at,
                silent_for=max((now - seen_at).total_seconds(), 0.0),
            )
            for sign, started_at, seen_at in self._rows.values()
            if not _is_old(seen_at, now)
        ]
        return sorted(there, key=lambda one: (one.sign.name, one.sign.id))


def _is_old(seen_at: datetime, now: datetime) -> bool:
    """Return whether a sign counts no more; a clock may have been set back since."""
    return abs((now - seen_at).total_seconds()) >= FORGOTTEN
