"""The office in a PostgreSQL database: one for any number of nodes."""

from collections.abc import Awaitable, Callable, Sequence
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
    names_outages,
    with_outages,
    with_versions,
)
from deadletter.core.seals import Sealing
from deadletter.core.text import stored
from deadletter.office.transactions.letter_store import TransactionalLetters
from deadletter.office.transactions.operations import Transaction
from deadletter.office.transactions.replays import report_sent
from deadletter.ports.features import Clock, Features
from deadletter.ports.letters import Kept, Names, Page

from . import audit, body_index, deaths, groups, letters_rows, presence, search, text_index
from .database import LONGEST, Connection, Database, limit_for
from .letter_operations import PostgresqlOperations, keeping
from .verification import LONG

# When brakes were open, and who said to go on.

_SAVE: Final = """
INSERT INTO deadletter.brake_windows AS kept (id, mailbox, is_closed, document)
VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET
    is_closed = excluded.is_closed, document = excluded.document
RETURNING kept.release
"""
_FORGET: Final = """
DELETE FROM deadletter.brake_windows WHERE id <= (
    SELECT id FROM deadletter.brake_windows ORDER BY id DESC LIMIT 1 OFFSET $1)
"""
_LATEST: Final = """
SELECT document, release FROM deadletter.brake_windows
WHERE $1::text IS NULL OR mailbox = $1 ORDER BY id DESC LIMIT $2
"""


async def save_window(connection: Connection, window: BrakeWindow, keep: int) -> BrakeWindow:
    """Write a window, new or again; return it with its release."""
    document, is_closed = encode(window), window.closed_at is not None
    (row,) = await connection.fetch(_SAVE, window.id, stored(window.mailbox), is_closed, document)
    await connection.execute(_FORGET, keep)
    return decode(document, row["release"])


async def latest_windows(
    connection: Connection, mailbox: str | None, limit: int
) -> Sequence[BrakeWindow]:
    """Windows of all mailboxes or one, the latest first."""
    rows = await connection.fetch(_LATEST, stored(mailbox), limit)
    return [decode(row["document"], row["release"]) for row in rows]


# The key that all processes of this office sign with.

_KEPT: Final = "SELECT key FROM deadletter.signing_key"
_KEEP: Final = """
INSERT INTO deadletter.signing_key (one, key) VALUES (1, $1) ON CONFLICT DO NOTHING
"""


async def signing_key(connection: Connection) -> bytes | None:
    """Return the key; None when nobody has made one yet."""
    rows = await connection.fetch(_KEPT)
    return bytes(rows[0]["key"]) if rows else None


async def keep_signing_key(connection: Connection, new: bytes) -> bytes:
    """Keep a new key unless there is one, and return the one that is kept."""
    await connection.execute(_KEEP, new)
    return await signing_key(connection) or new


T = TypeVar("T")

_MOST_PLACES: Final = 10_000  # of letters that were taken


class PostgresqlLetters(TransactionalLetters):
    """A letter store in one database."""

    def __init__(self, db: Database, *, clock: Clock, features: Features) -> None:
        self.features = features
        self._db = db
        super().__init__(clock, db.group_limit)
        # Ordinals of letters that were taken and are yet to be sent.
        self._places: dict[tuple[str, str], int] = {}

    async def transact(
        self, transaction: Transaction[T], *, patient: bool = False, size: int | None = None
    ) -> T:
        """Run a transaction, again where others were in the way."""
        return await self._db.write(lambda c: transaction(self._operations(c)))

    async def look(self, reading: Transaction[T], *, long: bool = False) -> T:
        """Run a transaction that only reads, without locks."""
        within = LONG if long else LONGEST
        return await self._db.read(
            lambda c: reading(PostgresqlOperations(c, locks=False)), within=within
        )

    def _operations(self, connection: Connection) -> PostgresqlOperations:
        if len(self._places) > _MOST_PLACES:  # of campaigns that were given up
            self._places.clear()
        return PostgresqlOperations(connection, places=self._places)

    async def list_groups(self, asked: Asked) -> Sequence[Group]:
        """List groups, latest or largest first."""
        return await self._db.read(lambda c: groups.groups(c, asked))

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """Keep letters durably, all of them or none."""
        if not letters:
            return []
        size = sum(len(letter.message.body) for letter in letters)
        keep = keeping(letters, self._clock.now(), self.group_limit)
        return await self._db.write(keep, within=limit_for(size))

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        asked = [stored(id_) for id_ in ids]
        rows = await self._db.fetch(letters_rows.GET, asked, within=LONGEST)
        by_id = {letter.id: letter for letter in map(letters_rows.with_original, rows)}
        return [by_id[id_] for id_ in ids if id_ in by_id]

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
        self, search: Callable[..., Awaitable[T]], query: Node, limit: int, after: str | None
    ) -> T:
        now = self._clock.now()

        async def work(connection: Connection) -> T:
            # The time begins here: who waits for a connection has not used any.
            meter = Meter(self._clock.monotonic)
            asked = query
            if compares_versions(query):
                seen = await groups.all_seen(connection, MOST_VERSIONS + 1)
                asked = with_versions(query, seen)
            if names_outages(query):
                windows = await latest_windows(connection, None, LOOKED_AT)
                asked = with_outages(asked, windows, now)
            return await search(connection, asked, limit=limit, after=after, now=now, meter=meter)

        return await self._db.search(work)

    async def index_texts(self) -> bool:
        """Index some texts; whether there is more."""
        if await self._db.write(text_index.index_some):
            return True
        return await self._db.write(body_index.index_some) > 0

    async def index_bodies(self, size: int) -> None:
        """Index bodies of up to `size` bytes from now on, 0 for none."""
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
        return await self._db.write(lambda c: deaths.tidy(c, now))

    async def versions(
        self, since: datetime, until: datetime, *, limit: int = 1_000
    ) -> Sequence[FirstSeen]:
        """Return the versions that were first seen in a span, latest first."""
        return await self._db.read(lambda c: deaths.versions(c, since, until, limit))

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return await self._db.read(audit.counts)

    async def group_counts(self, sources: Sequence[str] = ()) -> dict[GroupStatus, StatusCount]:
        """Return the number of groups by their current status."""
        now = self._clock.now()
        return await self._db.read(lambda c: groups.count_groups(c, sources, now))

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return await self._db.read(groups.rules)

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        (letter,) = await self.get([id]) or (None,)
        return None if letter is None else letter.original

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

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """Record that the broker has the copies of letters."""
        now = self._clock.now()
        # Should the server break down at this moment, it is as if we had not been
        # told yet, which may happen anyway.
        await self._db.write(
            lambda c: report_sent(self._operations(c), campaign, ids, now), durable=False
        )

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
        await self._db.write(lambda c: presence.note(c, signs))

    async def workers_left(self, ids: Sequence[str]) -> None:
        """Forget workers that have ended."""
        await self._db.write(lambda c: presence.leave(c, ids))

    async def workers(self) -> Sequence[WorkerSeen]:
        """Return the workers that are not forgotten, by name."""
        return await self._db.read(presence.seen)

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that all processes of this office sign with."""
        key = await self._db.read(signing_key)
        if key is None:
            return await self._db.write(lambda c: keep_signing_key(c, new))
        return key
