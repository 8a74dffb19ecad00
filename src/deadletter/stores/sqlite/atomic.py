"""
Sending letters back within the file: taken, sent and recorded in one transaction.

Bodies go from table to table and never pass through our hands.
"""

import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.grouping import GroupLimit
from deadletter.core.message import Lineage
from deadletter.core.packing import copy_of
from deadletter.core.replay_rules import judge
from deadletter.core.seals import MASK, Marks, leaving
from deadletter.core.text import stored
from deadletter.core.topology import check_name
from deadletter.ports.broker import Burial, Posted
from deadletter.ports.letters import Kept

from .audit import ADD, mailbox_marks
from .campaigns import SqliteCourse, existing
from .engine import Database, is_brief
from .letters_keep import keep
from .mailboxes import SqliteBroker, make
from .queue import COUNT_SENT, still_ours
from .replays import GIVEN, NEXT, freed, go_on, interrupted, record, sent
from .sql import fetch, micros, numbers, seconds, write

_COLUMNS: Final = """
seq, id, source, fingerprint, state, replays, ordinal, size, hex(rest), crc, hex(digest)
"""
_COPY: Final = """
INSERT INTO messages (mailbox, id, body, extra, sent_at, expires_at, due)
SELECT column2, column3, letter_contents.body, column4, column5, column6, column7
FROM (VALUES
"""
_ADD_MARKS: Final = f"""
UPDATE mailboxes SET sent_marks = sent_marks + ? {ADD} WHERE id = ?
"""  # noqa: S608 -- made of constants
_FROM_LETTERS: Final = ") CROSS JOIN letter_contents ON letter = column1"


class SqlitePostman:
    """Sends letters of this file back to mailboxes of this file."""

    at_once = 1_000

    def __init__(self, db: Database, broker: SqliteBroker) -> None:
        self._db = db
        self._broker = broker

    async def send_back(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Posted:
        """Send the next letters of a running campaign, in one transaction."""
        now = self._db.clock.now
        round_ = await self._db.write(
            lambda c: _Round(c, now()).send(campaign, limit, leave_out, keys)
        )
        for mailbox in round_.boxes.values():
            self._broker.ring(mailbox)
        return Posted(round_.letters, round_.size)


class _Round:
    """One transaction's worth."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self.letters = 0
        self.size = 0
        self.boxes: dict[str, int] = {}
        self._marks: dict[int, Marks] = {}
        self._connection = connection
        self._now = now

    def send(
        self, campaign: str, limit: int, leave_out: frozenset[str] | None, keys: int | None
    ) -> "_Round":
        """Send up to so many, the interrupted ones first."""
        stands = existing(self._connection, campaign)
        if stands.state is CampaignState.RUNNING:
            again = interrupted(self._connection, stands, limit, self._now)
            if again:
                self._send_again(stands, again)
            start, end = freed(self._connection, stands, limit - len(again))
            if end > start:
                self._send_planned(stands, start, end, leave_out or ())
            left = limit - len(again) - (end - start)
            go_on(
                self._connection,
                stands,
                left if keys is None else min(left, keys),
                lambda start, end: self._send_planned(stands, start, end, leave_out or ()),
                once=leave_out is not None,
            )
        return self

    def _send_again(self, stands: SqliteCourse, again: Sequence[int]) -> None:
        wanted = {"campaign": stands.seq, "ordinals": numbers(again)}
        rows = fetch(self._connection, _COLUMNS, GIVEN, wanted)
        self._copy(stands, [(row, row[5]) for row in rows])
        sent(self._connection, stands.id, [row[1] for row in rows], self._now)

    def _send_planned(
        self, stands: SqliteCourse, start: int, end: int, leave_out: Collection[str]
    ) -> int:
        span: dict[str, Any] = {"campaign": stands.seq, "start": start, "end": end}
        rows = fetch(self._connection, _COLUMNS, NEXT, span)
        going = judge(range(start, end), rows, stands.cap, leave_out)
        self._copy(stands, [(row, row[5] + 1) for row in going.rows])
        record(self._connection, stands, going, Outcome.SENT, leave_out, self._now)
        return len(going.rows)

    def _copy(self, stands: SqliteCourse, copies: Sequence[tuple[Sequence[Any], int]]) -> None:
        """Put copies into their mailboxes, each with its generation."""
        now = micros(self._now)
        per_box = Counter(stands.to or row[2] for row, _ in copies)
        expiry = {name: self._enter(name, n) for name, n in per_box.items()}
        written = []
        marks: Counter[int] = Counter()
        for row, generation in copies:
            name = stands.to or row[2]
            lineage = Lineage(letter_id=row[1], generation=generation, campaign=stands.id)
            id_, sent_at, expires_at, extra = copy_of(bytes.fromhex(row[8]), lineage)
            until = expiry[name]
            if expires_at is not None and expires_at > self._now:
                until = micros(expires_at)
            box, sent_micros = self.boxes[name], micros(sent_at)
            due = now if until is None else min(now, until)
            written.append((row[0], box, stored(id_), extra, sent_micros, until, due))
            marks[box] += self._marks[box].copy(id_, bytes.fromhex(row[10]), row[9])
            self.size += row[7]
        write(self._connection, _COPY, written, _FROM_LETTERS)
        for box, added in marks.items():
            self._connection.execute(_ADD_MARKS, (added & MASK, box))
        self.letters += len(written)

    def _enter(self, name: str, count: int) -> int | None:
        """Count what is sent to a mailbox; when that expires by itself, if it does."""
        if name not in self.boxes:
            check_name(name)
            box = self.boxes[name] = make(self._connection, name)
            self._marks[box] = mailbox_marks(self._connection, box)
        values = (count, leaving("sent", count, 0), self.boxes[name])
        counted = self._connection.execute(COUNT_SENT, values)
        expire_after, _ = counted.fetchone()
        if expire_after is None:
            return None
        return micros(self._now) + seconds(expire_after)


# Burying in the file: looking whose it is and keeping its letter are one.

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
