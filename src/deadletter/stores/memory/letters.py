"""
The office in memory, as simply as it can be said.

It is what other offices are compared with, so it prefers being obviously right
to being fast.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar

from msgspec import structs

from deadletter.core.brake import KEPT, BrakeWindow
from deadletter.core.deaths import DeathCount, DeathFilter, FirstSeen, VersionDeaths
from deadletter.core.errors import ConfigError
from deadletter.core.grouping import Asked, GroupLimit, GroupRule, StatusCount
from deadletter.core.letter import AuditEntry, DeadLetter, Group, GroupStatus, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.presence import WorkerSeen, WorkerSign
from deadletter.core.query import (
    EVERYTHING,
    LOOKED_AT,
    Meter,
    Node,
    matcher,
    names_outages,
    needs_contents,
    with_outages,
    with_versions,
)
from deadletter.core.query.match import LOOK
from deadletter.core.query.search_step import cursor, place
from deadletter.core.seals import Sealing
from deadletter.office.transactions.letter_store import TransactionalLetters
from deadletter.office.transactions.operations import Transaction, run_now
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.ports.letters import Page

from . import deaths
from .letter_operations import MemoryOperations
from .letter_table import LetterTable
from .presence import Signs

T = TypeVar("T")


class MemoryLetters(TransactionalLetters):
    """A letter store in the memory of this process."""

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        self.features = Features(engine="memory", durability=Durability.NONE, shared=False)
        super().__init__(clock, GroupLimit())
        self._shelf = LetterTable()
        self._signing_key = b""
        self._windows: dict[str, BrakeWindow] = {}
        self._signs = Signs()
        self._operations = MemoryOperations(self._shelf, self._windows)

    async def transact(
        self, transaction: Transaction[T], *, patient: bool = False, size: int | None = None
    ) -> T:
        """Run a transaction; nothing else runs meanwhile."""
        return run_now(transaction(self._operations))

    async def look(self, reading: Transaction[T], *, long: bool = False) -> T:
        """Run a transaction that only reads; nothing else runs meanwhile."""
        return run_now(reading(self._operations))

    async def list_groups(self, asked: Asked) -> Sequence[Group]:
        """List groups, latest or largest first."""
        return self._shelf.listed(asked)

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        there = self._shelf.by_id
        return [there[id_].whole() for id_ in ids if id_ in there]

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""
        if limit < 1:
            raise ConfigError(f"a page of {limit} letters: ask for at least one")
        start = None if after is None else place(after)
        query = with_versions(query, self._shelf.versions)
        if names_outages(query):
            query = with_outages(query, await self.windows(limit=LOOKED_AT), self._clock.now())
        fulfils = matcher(query, now=self._clock.now())
        opens = needs_contents(query)
        meter = Meter(self._clock.monotonic)
        heads: list[LetterHead] = []
        looked_at, here = 0, None
        for kept in self._shelf.newest_first():
            behind = (kept.head.dead_at, kept.seq)
            if start is not None and behind >= start:
                continue
            is_spent = looked_at == meter.budget.letters or (here and meter.is_spent)
            if here is not None and (len(heads) == limit or is_spent):
                return Page(tuple(heads), cursor(*here), looked_at, here[0])
            looked_at, here = looked_at + 1, behind
            if fulfils(kept.whole()):
                heads.append(kept.head)
            if opens:
                meter.opened(min(kept.head.size, LOOK))
                await asyncio.sleep(0)  # others go on between two letters
        return Page(tuple(heads), None, looked_at)

    async def deaths(self, request: DeathFilter) -> Sequence[DeathCount]:
        """Return deaths over time, earliest first."""
        return deaths.read(self._shelf.deaths, request)

    async def deaths_by_version(self, groups: Sequence[str]) -> Sequence[VersionDeaths]:
        """Return the deaths of groups by version, the latest first."""
        return deaths.by_version(self._shelf.deaths, groups)

    async def tidy_deaths(self) -> bool:
        """Add up the oldest counters whose steps are due; return whether there may be more."""
        return deaths.tidy(self._shelf.deaths, self._clock.now())

    async def versions(
        self, since: datetime, until: datetime, *, limit: int = 1_000
    ) -> Sequence[FirstSeen]:
        """Return the versions that were first seen in a span, latest first."""
        found = [
            FirstSeen(*name, at) for name, at in self._shelf.versions.items() if since <= at < until
        ]
        found.sort(key=lambda one: one.at, reverse=True)
        return found[:limit]

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return self._shelf.counts()

    async def group_counts(self, sources: Sequence[str] = ()) -> dict[GroupStatus, StatusCount]:
        """Return the number of groups by their current status."""
        return self._shelf.count_groups(sources, self._clock.now())

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return dict(self._shelf.rules)

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        kept = self._shelf.by_id.get(id)
        return None if kept is None else kept.letter.original

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""
        return await self._operations.read_audit(target=target, after=after, limit=limit)

    async def latest_audit(
        self,
        *,
        target: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[AuditEntry]:
        """The audit, newest first, from the entry in front of `before`."""
        found = (
            entry
            for entry in reversed(self._shelf.entries)
            if target in {None, entry.target}
            and actor in {None, entry.actor}
            and action in {None, entry.action}
            and (before is None or entry.seq < before)
        )
        return list(islice(found, limit))

    @property
    def sealing(self) -> Sealing:
        """Return the keys that seal letters and the audit."""
        return self._shelf.sealing

    def target_of(self, campaign: str) -> str | None:
        """Return the mailbox a campaign sends to, if not the one where letters died."""
        return self._operations.courses[campaign].campaign.to

    async def save_window(self, window: BrakeWindow, *, keep: int = KEPT) -> BrakeWindow:
        """Write down how a brake's window stands; return it with its release."""
        known = self._windows.get(window.id)
        release = known.release if known is not None else None
        kept = self._windows[window.id] = structs.replace(window, release=release)
        for oldest in sorted(self._windows)[:-keep]:
            del self._windows[oldest]
        return kept

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""
        found = sorted(self._windows.values(), key=lambda one: one.id, reverse=True)
        return [one for one in found if mailbox in (None, one.mailbox)][:limit]

    async def note_workers(self, signs: Sequence[WorkerSign]) -> None:
        """Write signs of life of workers."""
        self._signs.note(signs, self._clock.now())

    async def workers_left(self, ids: Sequence[str]) -> None:
        """Forget workers that have ended."""
        self._signs.leave(ids)

    async def workers(self) -> Sequence[WorkerSeen]:
        """Return the workers that are not forgotten, by name."""
        return self._signs.seen(self._clock.now())

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that this office signs with."""
        self._signing_key = self._signing_key or new
        return self._signing_key
