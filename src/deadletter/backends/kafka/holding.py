"""
What a member of the group has in hand of one mailbox: partitions, and their records.

Plain objects, guarded by whoever owns them: the member has one lock for all of it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final

from deadletter.core.message import Delivery, Message

from .offsets import WINDOW
from .rows import Lane, Place, Row
from .wire import Raw, Trail, micros

MAX_BYTES: Final = (
    64 * 1024 * 1024
)  # of records in hand, for each of the two topics; at times twice
_NEVER: Final = 2**62
_FAR: Final = 1_000_000  # microseconds: what is due sooner is not worth the trouble


class Holding:
    """All lanes of a mailbox, and whose turn it is."""

    def __init__(self, *, by_key: bool, numbers: Iterator[int]) -> None:
        self.lanes: dict[Place, Lane] = {}
        self.claimed: dict[int, Row] = {}
        self.returned: list[Row] = []  # whose holder went: to be sent round again
        self._by_key = by_key
        self._numbers = numbers
        self._seq = count()
        self._ahead: deque[Row] = deque()
        self._ready: list[tuple[int, int, Row]] = []
        self._suspects: list[tuple[int, int, Row]] = []
        self._busy: dict[str, deque[Row]] = {}  # keys in work, and who waits for them

    def add(self, lane: Lane) -> None:
        """A partition is ours."""
        self.lanes[lane.place] = lane

    def drop(self, lane: Lane) -> None:
        """...and is ours no longer."""
        lane.gone = True
        self.lanes.pop(lane.place, None)
        for row in lane.rows.values():
            if row.token is not None:
                self.claimed.pop(row.token, None)
                self._free_key(row)
        lane.rows.clear()
        self.returned = [row for row in self.returned if not row.lane.gone]

    def take_in(
        self,
        lane: Lane,
        offset: int,
        raw: Raw,
        message: Message,
        trail: Trail,
        *,
        due: int,
    ) -> None:
        """A record came."""
        if lane.gone or offset < lane.position:
            return
        progress = lane.progress
        if offset > lane.position:
            progress.skip(lane.position, offset)  # compacted away, or never visible
        lane.position = offset + 1
        fresh = progress.is_fresh(offset)
        if not fresh and progress.is_done(offset):
            return
        if message.expires_at is not None:
            due = min(due, micros(message.expires_at))
        row = Row(lane, offset, raw, message, trail, due=due, seq=next(self._seq))
        lane.rows[offset] = row
        lane.bytes += row.size
        if not fresh and progress.is_claimed(offset):
            self.returned.append(row)
        else:
            self._line_up(row)

    def reached_end(self, lane: Lane, offset: int) -> None:
        """There is nothing before that offset which we have not seen."""
        if offset > lane.position:
            lane.progress.skip(lane.position, offset)
            lane.position = offset

    def claim(self, now: int, until: int, limit: int, *, alone: bool) -> list[Row]:
        """The next ones that are due."""
        line = self._suspects if alone else self._ready
        taken = self._due(line, now, limit)
        for row in taken:
            self.hold(row, until, until - now, counted=True)
        return taken

    def claim_ahead(self, now: int, most: int) -> list[Row]:
        """Count some for whoever comes next, so that he need not wait for it."""
        if self._by_key:
            return []  # one of a key at a time: the next one is not known yet
        taken = self._due(self._ready, now, most - len(self._ahead))
        for row in taken:
            row.ahead = True
            row.lane.progress.claim(row.offset)
        return taken

    def keep_ready(self, rows: Iterable[Row]) -> None:
        """The broker has heard that these are counted."""
        self._ahead.extend(rows)

    @property
    def ready(self) -> int:
        """How many there are that were counted ahead."""
        return len(self._ahead)

    def take_ready(self, now: int, until: int, limit: int) -> list[Row]:
        """Those that were counted ahead."""
        taken: list[Row] = []
        while self._ahead and len(taken) < limit:
            row = self._ahead.popleft()
            if row.lane.closing:
                self.give_back_ahead([row])
            elif row.ahead and not row.lane.gone:
                self.hold(row, until, until - now, counted=True)
                taken.append(row)
        return taken

    def give_back_ahead(self, rows: Iterable[Row] | None = None) -> None:
        """Nobody comes for these: as if they had not been counted."""
        for row in list(self._ahead if rows is None else rows):
            if row.ahead and not row.lane.gone:
                row.ahead = False
                row.lane.progress.unclaim(row.offset)
                self._line_up(row)
        if rows is None:
            self._ahead.clear()

    def _due(self, line: list[tuple[int, int, Row]], now: int, limit: int) -> list[Row]:
        taken: list[Row] = []
        closing: list[Row] = []
        while len(taken) < limit and line and line[0][0] <= now:
            row = heappop(line)[2]
            if row.lane.gone or row.token is not None or row.ended or row.ahead:
                continue
            if row.lane.closing:
                closing.append(row)
            elif not self._waits_for_key(row):
                taken.append(row)
        for row in closing:
            self._line_up(row)
        return taken

    def hold(self, row: Row, until: int, lease: int = 0, *, counted: bool) -> None:
        """It is somebody's until then, for as long as `lease` says."""
        row.token = next(self._numbers)
        row.leased, row.lease = until, lease
        row.counted = counted
        row.ahead = False
        self.claimed[row.token] = row
        if counted:
            row.lane.progress.claim(row.offset)
        if self._by_key and row.message.key is not None:
            self._busy.setdefault(row.message.key, deque())

    def put_back(self, row: Row) -> None:
        """It is nobody's, as if it had not been claimed."""
        if row.lane.gone or row.token is None:
            return
        row.lane.progress.unclaim(row.offset)
        self._let_go(row)
        self._line_up(row)

    def end(self, row: Row, fate: str | None) -> None:
        """It is settled. It stays in hand until the broker has heard of it."""
        if not row.lane.gone and not row.ended:
            row.ended = True
            row.lane.progress.finish(row.offset, fate)

    def forget(self, row: Row) -> None:
        """The broker has heard that it ended."""
        if row.lane.gone or row.lane.rows.pop(row.offset, None) is None:
            return
        row.lane.bytes -= row.size
        if row.token is not None:
            self._let_go(row)

    def ours(self, delivery: Delivery, now: int) -> Row | None:
        """The row of a delivery that may still be settled."""
        row = self.claimed.get(delivery.receipt)
        if row is None or not (row.ended or row.leased > now):
            return None
        return row

    def overdue(self, now: int) -> list[Row]:
        """Claims whose lease has run out."""
        return [
            row
            for row in self.claimed.values()
            if not row.ended and row.leased <= now and not row.lane.closing
        ]

    def shorten(self, now: int) -> list[int]:
        """
        Shorten waits and leases that would last longer than was asked for.

        They were written by a clock that was ahead. Returns by how much, for each.
        """
        found = []
        for lane in self.lanes.values():
            for row in lane.rows.values():
                held = row.token is not None
                if row.ended or row.ahead or (held and row.leased == _NEVER):
                    continue
                latest = now + (row.lease if held else row.trail.wait)
                ahead = (row.leased if held else row.due) - latest
                if ahead <= _FAR:
                    continue
                found.append(ahead)
                if held:
                    row.leased = latest
                else:
                    row.due = latest
                    self._line_up(row)
        return found

    def doomed(self, now: int, max_attempts: int) -> Iterable[Row]:
        """What nobody has and nobody should try any more."""
        for lane in self.lanes.values():
            for row in lane.rows.values():
                if row.token is not None or row.ended or row.ahead or lane.closing:
                    continue
                charged = row.trail.attempts - row.trail.spared
                exhausted = row.trail.suspect and 0 < max_attempts <= charged
                if exhausted or row.expired(now):
                    yield row

    def stragglers(self, topic: str, now: int) -> list[Row]:
        """
        Records far from due that keep the window of a partition from moving on.

        They are held, to be sent round to the end of it.
        """
        found: list[Row] = []
        for lane in self.lanes.values():
            base = lane.progress.base
            if lane.place[0] != topic or lane.position - base < WINDOW // 2:
                continue
            found += [
                row
                for row in lane.rows.values()
                if row.token is None
                and not row.ended
                and row.offset < base + WINDOW // 4
                and row.due > now + _FAR
            ]
        for row in found:
            self.hold(row, _NEVER, counted=False)
        return found

    def weight(self, topic: str) -> int:
        """Bytes in hand of a topic's records."""
        return sum(lane.bytes for lane in self.lanes.values() if lane.place[0] == topic)

    def next_due(self, *, alone: bool) -> int | None:
        """When to look again, at the latest."""
        line = self._suspects if alone else self._ready
        return line[0][0] if line else None

    def at_hand(self, lanes: Iterable[Lane], soon: int) -> bool:
        """Whether something of these may be in work, now or by then."""
        if not any(lane.rows for lane in lanes):
            return False
        if self.claimed or self.returned or self._ahead:
            return True
        return any(
            line and line[0][0] <= soon for line in (self._ready, self._suspects)
        )

    def has_suspects(self, now: int) -> bool:
        """Whether a suspect waits to be run alone."""
        line = self._suspects
        while line and (line[0][2].lane.gone or line[0][2].token is not None):
            heappop(line)
        return bool(line) and line[0][0] <= now

    def in_work(self, lanes: Iterable[Lane]) -> bool:
        """Whether anything of these is in somebody's hands."""
        wanted = {id(lane) for lane in lanes}
        return any(id(row.lane) in wanted for row in self.claimed.values())

    def _let_go(self, row: Row) -> None:
        if row.token is not None:
            self.claimed.pop(row.token, None)
        row.token, row.counted = None, False
        self._free_key(row)

    def _waits_for_key(self, row: Row) -> bool:
        """Whether another one of its key is in work; from now on one is."""
        key = row.message.key
        if not self._by_key or key is None:
            return False
        if key not in self._busy:
            self._busy[key] = deque()
            return False
        self._busy[key].append(row)
        return True

    def _free_key(self, row: Row) -> None:
        if self._by_key and row.message.key is not None:
            for waiting in self._busy.pop(row.message.key, ()):
                if not waiting.lane.gone:
                    self._line_up(waiting)

    def _line_up(self, row: Row) -> None:
        line = self._suspects if row.trail.suspect else self._ready
        heappush(line, (row.due, row.seq, row))
