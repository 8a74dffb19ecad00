"""The office in a MongoDB database: one for any number of nodes."""

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from pymongo import ReturnDocument

from deadletter.core.brake import KEPT, BrakeWindow, decode, encode
from deadletter.core.grouping import Asked, GroupLimit, GroupRule, StatusCount
from deadletter.core.letter import AuditEntry, DeadLetter, Group, GroupStatus, ReviewOrder, State
from deadletter.core.message import Message
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
from deadletter.ports.features import Clock, Features
from deadletter.ports.letters import Names, Page

from . import audit, groups, letters_documents, search
from .database import LONGEST, Database, Turn, limit_for
from .letter_operations import MongodbOperations
from .schema import Collections

# When brakes were open, and who said to go on.


async def save_window(there: Collections, window: BrakeWindow, keep: int) -> BrakeWindow:
    """Write a window, new or again; return it with its release."""
    document = encode(window)
    changes = {
        "mailbox": stored(window.mailbox),
        "is_closed": window.closed_at is not None,
        "document": document,
    }
    kept = await there.windows.find_one_and_update(
        {"_id": window.id}, {"$set": changes}, upsert=True, return_document=ReturnDocument.AFTER
    )
    newest = there.windows.find({}, {"_id": 1}).sort("_id", -1).skip(keep).limit(1)
    async for old in newest:
        await there.windows.delete_many({"_id": {"$lte": old["_id"]}})
    return decode(document, kept.get("release") if kept else None)


async def latest_windows(
    there: Collections, mailbox: str | None, limit: int
) -> Sequence[BrakeWindow]:
    """Windows of all mailboxes or one, the latest first."""
    asked = {} if mailbox is None else {"mailbox": stored(mailbox)}
    found = there.windows.find(asked).sort("_id", -1).limit(limit)
    return [decode(one["document"], one.get("release")) async for one in found]


T = TypeVar("T")

_VERIFYING: Final = 3_600.0  # seconds that looking at everything may take


class MongodbLetters(TransactionalLetters):
    """A letter store in one database."""

    ids_at_once = 2_000  # in a turn, so that nobody waits long for the next

    def __init__(
        self,
        db: Database,
        *,
        clock: Clock,
        features: Features,
        review_order: ReviewOrder = ReviewOrder.FREE,
    ) -> None:
        self.features = features
        self.review_order = review_order
        self._db = db
        super().__init__(clock, GroupLimit())

    async def transact(
        self, transaction: Transaction[T], *, patient: bool = False, size: int | None = None
    ) -> T:
        """Run a transaction in a turn, again where others were in the way."""
        within = LONGEST if size is None else limit_for(size)
        return await self._db.write(
            lambda turn: transaction(MongodbOperations(turn)), within=within
        )

    async def look(self, reading: Transaction[T], *, long: bool = False) -> T:
        """Run a transaction that only reads, on the office as it was at one moment."""
        within = _VERIFYING if long else LONGEST
        return await self._db.read(
            lambda there, session: reading(
                MongodbOperations(Turn(there, session, {}, self.sealing))
            ),
            within=within,
        )

    async def list_groups(self, asked: Asked) -> Sequence[Group]:
        """List groups, latest or largest first."""
        return await self._db.read(partial(groups.groups, asked=asked))

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        return await self._db.read(partial(letters_documents.get, ids=ids))

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""
        asked = await self._asked(query, limit, after)
        return await self._db.search(partial(search.find, asked=asked))

    async def find_ids(
        self, query: Node = EVERYTHING, *, limit: int, after: str | None = None
    ) -> Names:
        """Search like `find`, for ids alone."""
        asked = await self._asked(query, limit, after)
        return await self._db.search(partial(search.find_ids, asked=asked))

    async def _asked(self, query: Node, limit: int, after: str | None) -> search.Asked:
        if compares_versions(query):
            look = partial(groups.all_seen, most=MOST_VERSIONS + 1)
            query = with_versions(query, await self._db.search(look))
        if names_outages(query):
            query = with_outages(query, await self.windows(limit=LOOKED_AT), self._clock.now())
        meter = Meter(self._clock.monotonic)
        return search.Asked(query, limit, after, self._clock.now(), meter)

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        return await self._db.read(groups.counts)

    async def group_counts(self, sources: Sequence[str] = ()) -> dict[GroupStatus, StatusCount]:
        """Return the number of groups by their current status."""
        now = self._clock.now()
        return await self._db.read(partial(groups.count_groups, sources=sources, now=now))

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return await self._db.read(groups.rules)

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        found = await self._db.read(partial(letters_documents.originals, ids=[id]))
        return found.get(id)

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""
        return await self._db.read(partial(audit.page, target=target, after=after, limit=limit))

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
        return await self._db.read(partial(audit.latest, wanted=wanted, before=before, limit=limit))

    @property
    def sealing(self) -> Sealing:
        """Return the keys that seal letters and the audit."""
        return self._db.sealing

    async def save_window(self, window: BrakeWindow, *, keep: int = KEPT) -> BrakeWindow:
        """Write down how a brake's window stands; return it with its release."""
        return await self._db.plainly(lambda there: save_window(there, window, keep))

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""
        return await self._db.plainly(lambda there: latest_windows(there, mailbox, limit))

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that all processes of this office sign with."""

        async def work(turn: Turn) -> bytes:
            return bytes(turn.numbers.setdefault("signing_key", new))

        return await self._db.write(work)
