"""Burying in the file: looking whose it is and keeping its letter are one."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.group_limit import GroupLimit
from deadletter.ports.burial import Burial
from deadletter.ports.letters import Kept

from .engine import Database, is_brief
from .letters_keep import keep
from .mailboxes import SqliteBroker
from .rows import micros
from .settling import still_ours

_LETTER: Final = 8  # rows' worth of work, with all that it is found by


class SqliteUndertaker:
    """Keeps letters only of what is still ours."""

    def __init__(self, db: Database, broker: SqliteBroker) -> None:
        self._db = db
        self._broker = broker

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """Keep the letters of deliveries that are still ours, in one transaction."""
        if not burials:
            return []
        box = await self._broker.number(burials[0].delivery.mailbox)
        now = self._db.clock.now
        size = sum([burial.letter.head.size for burial in burials])
        return await self._db.write(
            lambda c: _bury(c, burials, box, now(), self._db.group_limit),
            brief=is_brief(_LETTER * len(burials), size),
            patient=True,
        )


def _bury(
    connection: sqlite3.Connection,
    burials: Sequence[Burial],
    box: int,
    now: datetime,
    limit: GroupLimit,
) -> list[Kept | None]:
    receipts = [burial.delivery.receipt for burial in burials]
    ours = still_ours(connection, receipts, micros(now), box)
    mine = [receipt in ours for receipt in receipts]
    letters = [b.letter for b, flag in zip(burials, mine, strict=True) if flag]
    kept = iter(keep(connection, letters, now, limit))
    return [next(kept) if flag else None for flag in mine]
