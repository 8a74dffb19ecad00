"""The office in a SQLite file."""

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from deadletter.core.brake import KEPT, BrakeWindow, decode, encode
from deadletter.core.deaths import DeathCount, DeathFilter, FirstSeen, VersionDeaths
from deadletter.core.grouping import Asked, GroupRule, StatusCount
from deadletter.core.letter import AuditEntry, DeadLetter, Group, GroupStatus, State
from deadletter.core.message import Message
from deadletter.core.presence import WorkerSeen, WorkerSign
from deadletter.core.query import (
    EVERYTHING,
    LOOKED_AT,
    MOST_VERSIONS,
    Meter,
    Node,
    compares_versions,
    is_costly,
    names_outages,
    with_outages,
    with_versions,
)
from deadletter.core.seals import Sealing
from deadletter.office.transactions.letter_store import TransactionalLetters
from deadletter.office.transactions.operations import Transaction, run_now
from deadletter.ports.features import Clock, Dice, Features
from deadletter.ports.letters import Names, Page

from . import audit, body_index, deaths, groups, letters_rows, presence, search, text_index
from .engine import Database
from .letter_operations import SqliteOperations
from .sql import stored

# When brakes were open, and who said to go on.

_SAVE: Final = """
INSERT INTO brake_windows (id, mailbox, is_closed, document) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    is_closed = excluded.is_closed, document = excluded.document
RETURNING release
"""
_FORGET: Final = """
DELETE FROM brake_windows WHERE id <= (
    SELECT id FROM brake_windows ORDER BY id DESC LIMIT 1 OFFSET ?)
"""
_LATEST: Final = """
SELECT document, release FROM brake_windows
WHERE ?1 IS NULL OR mailbox = ?1 ORDER BY id DESC LIMIT ?2
"""


def save_window(connection: sqlite3.Connection, window: BrakeWindow, keep: int) -> BrakeWindow:
    """Write a window, new or again; return it with its release."""
    is_closed = window.closed_at is not None
    row = (window.id, stored(window.mailbox), is_closed, encode(window))
    (release,) = connection.execute(_SAVE, row).fetchone()
    connection.execute(_FORGET, (keep,))
    return decode(encode(window), release)


def latest_windows(
    connection: sqlite3.Connection, mailbox: str | None, limit: int
) -> Sequence[BrakeWindow]:
    """Windows of all mailboxes or one, the latest first."""
    rows = connection.execute(_LATEST, (stored(mailbox), limit))
    return [decode(document, release) for document, release in rows]


# The key that all processes which open the file sign with.


def signing_key(connection: sqlite3.Connection) -> bytes | None:
    """Return the key; None when nobody has made one yet."""
    row = connection.execute("SELECT key FROM signing_key").fetchone()
    return None if row is None else bytes(row[0])


def keep_signing_key(connection: sqlite3.Connection, new: bytes) -> bytes:
    """Keep a new key unless there is one, and return the one that is kept."""
    connection.execute(
        "INSERT INTO signing_key (one, key) VALUES (1, ?) ON CONFLICT DO NOTHING", (new,)
    )
    return signing_key(connection) or new


T = TypeVar("T")


class SqliteLetters(TransactionalLetters):
    """A letter store in one SQLite file."""

    regroupings_at_once = 1_000

    def __init__(self, db: Database, *, clock: Clock, dice: Dice, features: Features) -> None:
        self.features = features
        self._db = db
        super().__init__(clock, db.group_limit)

    async def transact(
        self, transaction: Transaction[T], *, patient: bool = False, size: int | None = None
    ) -> T:
        """Run a transaction on the writer's thread."""
        return await self._db.write(
            lambda c: run_now(transaction(SqliteOperations(c))), patient=patient
        )

    async def look(self, reading: Transaction[T], *, long: bool = False) -> T:
        """Run a transaction that only reads, on a reader's thread."""
        return await self._db.read(lambda c: run_now(reading(SqliteOperations(c))))

    async def list_groups(self, asked: Asked) -> Sequence[Group]:
        """List groups, latest or largest first."""
        return await self._db.read(lambda c: groups.groups(c, asked))

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        return await self._db.read(lambda c: letters_rows.get(c, ids))

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""
        return await self._searched(search.find, query, limit, after)

    async def find_ids(
        self, query: Node = EVERYTHING, *, limit: int, after: str | None = None
    ) -> Names:
        """Search like `find`, for ids alone."""
        return await self._searched(search.find_ids, query, limit, after)

    async def _searched(
        self, search: Callable[..., T], query: Node, limit: int, after: str | None
    ) -> T:
        now = self._clock.now()

        def work(connection: sqlite3.Connection) -> T:
            # The time begins here: who waits for a thread has not used any.
            meter.start()
            asked = query
            if compares_versions(query):
                seen = groups.all_seen(connection, MOST_VERSIONS + 1)
                asked = with_versions(query, seen)
            if names_outages(query):
                asked = with_outages(asked, latest_windows(connection, None, LOOKED_AT), now)
            return search(connection, asked, limit=limit, after=after, now=now, meter=meter)

        meter = Meter(self._clock.monotonic)
        if is_costly(query):
            return await self._db.search(work, meter)
        return await self._db.read(work)

    async def index_texts(self) -> bool:
        """Index some texts, or tidy up behind some; whether there is more."""
        for index in (text_index, body_index):
            if not await self._db.read(index.has_more):
                continue  # nobody need wait for us
            if await self._db.write(index.index_some, patient=True):
                return True
            if await self._db.write(index.tidy_some, patient=True):
                return True
        return False

    async def index_bodies(self, size: int) -> None:
        """Index bodies of up to `size` bytes from now on, 0 for none."""
        is_new = await self._db.read(body_index.largest) != size
        if is_new and text_index.is_possible():
            await self._db.write(lambda c: body_index.index_up_to(c, size))

    async def deaths(self, request: DeathFilter) -> Sequence[DeathCount]:
        """Return deaths over time, earliest first."""
        return await self._db.read(lambda c: deaths.read(c, request))

    async def deaths_by_version(self, groups: Sequence[str]) -> Sequence[VersionDeaths]:
        """Return the deaths of groups by version, the latest first."""
        return await self._db.read(lambda c: deaths.by_version(c, groups))

    async def tidy_deaths(self) -> bool:
        """Add up the oldest counters whose steps are due; return whether there may be more."""
        now = self._clock.now()
        return await self._db.write(lambda c: deaths.tidy(c, now), patient=True)

    async def versions(
        self, since: datetime, until: datetime, *, limit: int = 1_000
    ) -> Sequence[FirstSeen]:
        """Return the versions that were first seen in a span, latest first."""
        return await self._db.read(lambda c: deaths.versions(c, since, until, limit))

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return await self._db.read(groups.counts)

    async def group_counts(self, sources: Sequence[str] = ()) -> dict[GroupStatus, StatusCount]:
        """Return the number of groups by their current status."""
        now = self._clock.now()
        return await self._db.read(lambda c: groups.count_groups(c, sources, now))

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return await self._db.read(groups.rules)

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        found = await self._db.read(lambda c: letters_rows.originals(c, [id]))
        return found.get(id)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""
        return await self._db.read(lambda c: audit.page(c, target=target, after=after, limit=limit))

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
        wanted = {"target": target, "actor": actor, "action": action}
        return await self._db.read(lambda c: audit.latest(c, wanted, before, limit))

    @property
    def sealing(self) -> Sealing:
        """Return the keys that seal letters and the audit."""
        return self._db.sealing

    async def save_window(self, window: BrakeWindow, *, keep: int = KEPT) -> BrakeWindow:
        """Write down how a brake's window stands; return it with its release."""
        return await self._db.write(lambda c: save_window(c, window, keep))

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""
        return await self._db.read(lambda c: latest_windows(c, mailbox, limit))

    async def note_workers(self, signs: Sequence[WorkerSign]) -> None:
        """Write signs of life of workers."""
        now = self._clock.now()
        await self._db.write(lambda c: presence.note(c, signs, now), patient=True)

    async def workers_left(self, ids: Sequence[str]) -> None:
        """Forget workers that have ended."""
        await self._db.write(lambda c: presence.leave(c, ids), patient=True)

    async def workers(self) -> Sequence[WorkerSeen]:
        """Return the workers that are not forgotten, by name."""
        now = self._clock.now()
        return await self._db.read(lambda c: presence.seen(c, now))

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that all processes of this office sign with."""
        key = await self._db.read(signing_key)
        if key is None:
            return await self._db.write(lambda c: keep_signing_key(c, new))
        return key
