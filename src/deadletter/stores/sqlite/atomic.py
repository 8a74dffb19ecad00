"""
Sending letters back within the file: taken, sent and recorded in one transaction.

Bodies go from table to table and never pass through our hands.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.grouping import GroupLimit
from deadletter.core.message import Lineage
from deadletter.core.packing import copy_of
from deadletter.core.replay_rules import Candidate
from deadletter.core.seals import MASK, Marks, leaving
from deadletter.core.text import stored
from deadletter.core.topology import check_name
from deadletter.office.transactions.filing import file_letters
from deadletter.office.transactions.operations import CampaignPosition, run_now
from deadletter.office.transactions.replays import ReplayRequest, ReplayRound
from deadletter.ports.broker import Burial, Posted
from deadletter.ports.letters import Kept

from .audit import ADD, mailbox_marks
from .engine import Database, is_brief
from .letter_operations import SqliteOperations
from .mailboxes import SqliteBroker, make
from .queue import COUNT_SENT, still_ours
from .sql import micros, seconds, write

_COPY: Final = """
INSERT INTO messages (mailbox, id, body, extra, sent_at, expires_at, due)
SELECT column2, column3, letter_contents.body, column4, column5, column6, column7
FROM (VALUES
"""
_ADD_MARKS: Final = f"""
UPDATE mailboxes SET sent_marks = sent_marks + ? {ADD} WHERE id = ?
"""  # noqa: S608 -- made of constants
_FROM_LETTERS: Final = ") CROSS JOIN letter_contents ON letter = column1"


class SqliteAtomicReplay:
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
        request = ReplayRequest(campaign, limit, leave_out, keys)

        def work(connection: sqlite3.Connection) -> _Round:
            round_ = _Round(connection, self._db.clock.now())
            run_now(round_.run(request))
            return round_

        round_ = await self._db.write(work)
        for mailbox in round_.boxes.values():
            self._broker.ring(mailbox)
        return Posted(round_.letters, round_.size)


class _Round(ReplayRound):
    """Letters copied into mailboxes of the file, in one transaction."""

    outcome = Outcome.SENT
    with_bodies = False

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        super().__init__(SqliteOperations(connection), now)
        self.letters = 0
        self.size = 0
        self.boxes: dict[str, int] = {}
        self._marks: dict[int, Marks] = {}
        self._connection = connection

    async def send(self, course: CampaignPosition, letters: Sequence[Candidate], more: int) -> None:
        """Put copies into their mailboxes, each with its generation."""
        now = micros(self.now)
        per_box = Counter([course.to or one.source for one in letters])
        expiry = {name: self._enter(name, n) for name, n in per_box.items()}
        written = []
        marks: Counter[int] = Counter()
        for one in letters:
            name = course.to or one.source
            size, rest, crc, digest = one.contents
            lineage = Lineage(letter_id=one.id, generation=one.replays + more, campaign=course.id)
            id_, sent_at, expires_at, extra = copy_of(bytes.fromhex(rest), lineage)
            until = expiry[name]
            if expires_at is not None and expires_at > self.now:
                until = micros(expires_at)
            box, sent_micros = self.boxes[name], micros(sent_at)
            due = now if until is None else min(now, until)
            written.append((one.seq, box, stored(id_), extra, sent_micros, until, due))
            marks[box] += self._marks[box].copy(id_, bytes.fromhex(digest), crc)
            self.size += size
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
        return micros(self.now) + seconds(expire_after)


# Burying in the file: looking whose it is and keeping its letter are one.

_LETTER: Final = 8  # rows' worth of work, with all that it is found by


class SqliteAtomicBurial:
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
    operations = SqliteOperations(connection)
    kept = iter(run_now(file_letters(operations, letters, now, limit)))
    return [next(kept) if flag else None for flag in mine]
