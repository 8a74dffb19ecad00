"""
The backlog of one mailbox in this process: records of the assigned partitions, by due time.

Plain objects without locks of their own: the group member guards them with one lock.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Final

from deadletter.core.message import Delivery, Message
from deadletter.kit import micros

from .partitions import WINDOW, Assignment, Entry, Place
from .records import Raw, Trail

MAX_BYTES: Final = (
    64 * 1024 * 1024
)  # of records in hand, for each of the two topics; at times twice
_NEVER: Final = 2**62
_FAR: Final = 1_000_000  # microseconds: what is due sooner is not worth the error


class Backlog:
    """All assigned partitions of a mailbox, and the order of their records."""

    def __init__(self, *, by_key: bool, numbers: Iterator[int]) -> None:
        self.assignments: dict[Place, Assignment] = {}
        self.claimed: dict[int, Entry] = {}
        self.returned: list[Entry] = []  # claimed by a previous owner: to be requeued
        self._by_key = by_key
        self._numbers = numbers
        self._seq = count()
        self._ahead: deque[Entry] = deque()
        self._ready: list[tuple[int, int, Entry]] = []
        self._suspects: list[tuple[int, int, Entry]] = []
        self._busy: dict[str, deque[Entry]] = {}  # keys in progress, and entries that wait for them

    def assign(self, assignment: Assignment) -> None:
        """Add a partition that the group assigned to us."""
        self.assignments[assignment.place] = assignment

    def revoke(self, assignment: Assignment) -> None:
        """Remove a partition that was revoked, with its entries."""
        assignment.gone = True
        self.assignments.pop(assignment.place, None)
        for entry in assignment.entries.values():
            if entry.token is not None:
                self.claimed.pop(entry.token, None)
                self._free_key(entry)
        assignment.entries.clear()
        self.returned = [entry for entry in self.returned if not entry.assignment.gone]

    def add(
        self,
        assignment: Assignment,
        offset: int,
        raw: Raw,
        message: Message,
        trail: Trail,
        *,
        due: int,
    ) -> None:
        """Add a record of a partition."""
        if assignment.gone or offset < assignment.position:
            return
        progress = assignment.progress
        if offset > assignment.position:
            progress.skip(assignment.position, offset)  # compacted, or not visible
        assignment.position = offset + 1
        fresh = progress.is_fresh(offset)
        if not fresh and progress.is_done(offset):
            return
        if message.expires_at is not None:
            due = min(due, micros(message.expires_at))
        entry = Entry(assignment, offset, raw, message, trail, due=due, seq=next(self._seq))
        assignment.entries[offset] = entry
        assignment.bytes += entry.size
        if not fresh and progress.is_claimed(offset):
            self.returned.append(entry)
        else:
            self._line_up(entry)

    def reached_end(self, assignment: Assignment, offset: int) -> None:
        """Record that all records before an offset were read."""
        if offset > assignment.position:
            assignment.progress.skip(assignment.position, offset)
            assignment.position = offset

    def claim(self, now: int, until: int, limit: int, *, alone: bool) -> list[Entry]:
        """Claim the next entries that are due."""
        line = self._suspects if alone else self._ready
        taken = self._due(line, now, limit)
        for entry in taken:
            self.hold(entry, until, until - now, counted=True)
        return taken

    def claim_ahead(self, now: int, most: int) -> list[Entry]:
        """Count attempts ahead for the next `receive`, so that it need not wait."""
        if self._by_key:
            return []  # one entry per key at a time: the next is not known yet
        taken = self._due(self._ready, now, most - len(self._ahead))
        for entry in taken:
            entry.ahead = True
            entry.assignment.progress.claim(entry.offset)
        return taken

    def keep_ready(self, entries: Iterable[Entry]) -> None:
        """Keep entries whose counts are committed."""
        self._ahead.extend(entries)

    @property
    def ready(self) -> int:
        """Number of entries that were counted ahead."""
        return len(self._ahead)

    def take_ready(self, now: int, until: int, limit: int) -> list[Entry]:
        """Claim entries that were counted ahead."""
        taken: list[Entry] = []
        while self._ahead and len(taken) < limit:
            entry = self._ahead.popleft()
            if entry.assignment.closing:
                self.give_back_ahead([entry])
            elif entry.ahead and not entry.assignment.gone:
                self.hold(entry, until, until - now, counted=True)
                taken.append(entry)
        return taken

    def give_back_ahead(self, entries: Iterable[Entry] | None = None) -> None:
        """Undo the counting ahead of entries; of all without `entries`."""
        for entry in list(self._ahead if entries is None else entries):
            if entry.ahead and not entry.assignment.gone:
                entry.ahead = False
                entry.assignment.progress.unclaim(entry.offset)
                self._line_up(entry)
        if entries is None:
            self._ahead.clear()

    def _due(self, line: list[tuple[int, int, Entry]], now: int, limit: int) -> list[Entry]:
        taken: list[Entry] = []
        closing: list[Entry] = []
        while len(taken) < limit and line and line[0][0] <= now:
            entry = heappop(line)[2]
            if entry.assignment.gone or entry.token is not None or entry.ended or entry.ahead:
                continue
            if entry.assignment.closing:
                closing.append(entry)
            elif not self._waits_for_key(entry):
                taken.append(entry)
        for entry in closing:
            self._line_up(entry)
        return taken

    def hold(self, entry: Entry, until: int, lease: int = 0, *, counted: bool) -> None:
        """Claim an entry until a time; `counted` makes it an attempt."""
        entry.token = next(self._numbers)
        entry.leased, entry.lease = until, lease
        entry.counted = counted
        entry.ahead = False
        self.claimed[entry.token] = entry
        if counted:
            entry.assignment.progress.claim(entry.offset)
        if self._by_key and entry.message.key is not None:
            self._busy.setdefault(entry.message.key, deque())

    def put_back(self, entry: Entry) -> None:
        """Undo a claim."""
        if entry.assignment.gone or entry.token is None:
            return
        entry.assignment.progress.unclaim(entry.offset)
        self._let_go(entry)
        self._line_up(entry)

    def end(self, entry: Entry, fate: str | None) -> None:
        """Mark an entry as settled; it stays until that is committed."""
        if not entry.assignment.gone and not entry.ended:
            entry.ended = True
            entry.assignment.progress.finish(entry.offset, fate)

    def forget(self, entry: Entry) -> None:
        """Drop an entry whose end is committed."""
        if entry.assignment.gone or entry.assignment.entries.pop(entry.offset, None) is None:
            return
        entry.assignment.bytes -= entry.size
        if entry.token is not None:
            self._let_go(entry)

    def ours(self, delivery: Delivery, now: int) -> Entry | None:
        """Return the entry of a delivery that may still be settled."""
        entry = self.claimed.get(delivery.receipt)
        if entry is None or not (entry.ended or entry.leased > now):
            return None
        return entry

    def overdue(self, now: int) -> list[Entry]:
        """Return claimed entries with an expired lease."""
        return [
            entry
            for entry in self.claimed.values()
            if not entry.ended and entry.leased <= now and not entry.assignment.closing
        ]

    def shorten(self, now: int) -> list[int]:
        """
        Shorten waits and leases that are longer than requested.

        A clock that was ahead wrote them. Returns the excess of each.
        """
        found = []
        for assignment in self.assignments.values():
            for entry in assignment.entries.values():
                held = entry.token is not None
                if entry.ended or entry.ahead or (held and entry.leased == _NEVER):
                    continue
                latest = now + (entry.lease if held else entry.trail.wait)
                ahead = (entry.leased if held else entry.due) - latest
                if ahead <= _FAR:
                    continue
                found.append(ahead)
                if held:
                    entry.leased = latest
                else:
                    entry.due = latest
                    self._line_up(entry)
        return found

    def doomed(self, now: int, max_attempts: int) -> Iterable[Entry]:
        """Yield unclaimed entries that are out of attempts or expired."""
        for assignment in self.assignments.values():
            for entry in assignment.entries.values():
                if entry.token is not None or entry.ended or entry.ahead or assignment.closing:
                    continue
                charged = entry.trail.attempts - entry.trail.spared
                exhausted = entry.trail.suspect and 0 < max_attempts <= charged
                if exhausted or entry.expired(now):
                    yield entry

    def stragglers(self, topic: str, now: int) -> list[Entry]:
        """
        Claim records due far in the future that block the window of a partition.

        The caller requeues them at the end of the topic.
        """
        found: list[Entry] = []
        for assignment in self.assignments.values():
            base = assignment.progress.base
            if assignment.place[0] != topic or assignment.position - base < WINDOW // 2:
                continue
            found += [
                entry
                for entry in assignment.entries.values()
                if entry.token is None
                and not entry.ended
                and entry.offset < base + WINDOW // 4
                and entry.due > now + _FAR
            ]
        for entry in found:
            self.hold(entry, _NEVER, counted=False)
        return found

    def weight(self, topic: str) -> int:
        """Bytes in hand of a topic's records."""
        return sum(
            assignment.bytes
            for assignment in self.assignments.values()
            if assignment.place[0] == topic
        )

    def next_due(self, *, alone: bool) -> int | None:
        """Return when to look again, at the latest."""
        line = self._suspects if alone else self._ready
        return line[0][0] if line else None

    def at_hand(self, assignments: Iterable[Assignment], soon: int) -> bool:
        """Return whether some of these may be in progress, now or by then."""
        if not any(assignment.entries for assignment in assignments):
            return False
        if self.claimed or self.returned or self._ahead:
            return True
        return any(line and line[0][0] <= soon for line in (self._ready, self._suspects))

    def has_suspects(self, now: int) -> bool:
        """Return whether a suspect waits to be run alone."""
        line = self._suspects
        while line and (line[0][2].assignment.gone or line[0][2].token is not None):
            heappop(line)
        return bool(line) and line[0][0] <= now

    def in_work(self, assignments: Iterable[Assignment]) -> bool:
        """Return whether any of these entries is claimed."""
        wanted = {id(assignment) for assignment in assignments}
        return any(id(entry.assignment) in wanted for entry in self.claimed.values())

    def _let_go(self, entry: Entry) -> None:
        if entry.token is not None:
            self.claimed.pop(entry.token, None)
        entry.token, entry.counted = None, False
        self._free_key(entry)

    def _waits_for_key(self, entry: Entry) -> bool:
        """Return whether an entry has to wait for another one of its key, and queue it if so."""
        key = entry.message.key
        if not self._by_key or key is None:
            return False
        if key not in self._busy:
            self._busy[key] = deque()
            return False
        self._busy[key].append(entry)
        return True

    def _free_key(self, entry: Entry) -> None:
        if self._by_key and entry.message.key is not None:
            for waiting in self._busy.pop(entry.message.key, ()):
                if not waiting.assignment.gone:
                    self._line_up(waiting)

    def _line_up(self, entry: Entry) -> None:
        line = self._suspects if entry.trail.suspect else self._ready
        heappush(line, (entry.due, entry.seq, entry))
