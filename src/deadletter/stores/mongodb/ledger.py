"""
The ledger: what has been done, and who is doing what.

Every claim has a token of its own, so that each step may be repeated: whoever finds
its token in a document has it. Time is the server's.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from math import ceil
from typing import Any, Final, TypeVar

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from deadletter.core.text import stored
from deadletter.office.transactions.ledger import Ended, Entry, LedgerOperations, Name, StoredLedger
from deadletter.ports.engine import DIGEST, LedgerState
from deadletter.profiles.documents import KeyFields

from .database import Database
from .letters_documents import octets
from .schema import Collections, Document

T = TypeVar("T")

_FOUND: Final = dict.fromkeys(("generation", "state", "holder", "token", "digests"), 1)
_DUPLICATE: Final = 11000
_LONGEST_TIME: Final = 36_500 * 86_400.0  # seconds: a time that still is one

# The path of a key through its states, with the times: for people, in its document.

_RECEIVED: Final = "received"  # never where a key stands: whoever sees it begins
_LONGEST: Final = -50  # the latest steps


def begun_path(now: Any, generation: int) -> Document:
    """The path of a key that is taken up: for the first time, again, or replayed."""
    received = {"$cond": [_is_new(generation), [_step(_RECEIVED, now)], []]}
    return _on(received, [_step(LedgerState.PROCESSING.value, now)])


def ended_path(now: Any, state: str) -> Document:
    """The path of a key that is finished; told again, it is the same."""
    steps = [_step(state, now)]
    if state == LedgerState.DEAD_LETTERED.value:
        steps.insert(0, _step(LedgerState.FAILED.value, now))
    is_first = {"$eq": ["$state", LedgerState.PROCESSING.value]}
    return {"$cond": [is_first, _on(steps), "$path"]}


def _is_new(generation: int) -> Document:
    return {"$ne": ["$generation", generation]}


def _on(*steps: Any) -> Document:
    path = {"$concatArrays": [{"$ifNull": ["$path", []]}, *steps]}
    return {"$slice": [path, _LONGEST]}


def _step(state: str, now: Any) -> Document:
    return {"state": state, "at": now}


class ServerTime:
    """The server's clock, which all share."""

    expression: Any = "$$NOW"

    async def now(self, there: Collections) -> datetime:
        """Return the time of the server."""
        hello = await there.ledger.database.command("hello")
        time: datetime = hello["localTime"]
        return time


class MongodbLedger(StoredLedger):
    """Idempotency: what has been done already, and what is being done now."""

    def __init__(
        self, db: Database, time: ServerTime | None = None, fields: KeyFields | None = None
    ) -> None:
        super().__init__()
        self._db = db
        self._fields = fields
        self._time = time or ServerTime()

    async def transact(self, work: Callable[[LedgerOperations], Coroutine[Any, Any, T]]) -> T:
        """Run operations; each part stands for itself, and none overwrites what others changed."""
        return await work(self._operations())

    async def find(self, names: Collection[Name]) -> dict[Name, Entry]:
        """Return the entries of keys."""
        return await self._operations().find(names)

    def _operations(self) -> "_Operations":
        return _Operations(self._db, self._time.expression, self._fields)

    async def delete_expired(self, limit: int) -> int:
        """Delete finished keys whose time to live is over; return their number."""
        now = await self._db.plainly(self._time.now)
        return await self._drop({"expire_at": {"$lte": now}}, limit)

    async def delete_abandoned(self, age: float, limit: int) -> int:
        """Delete claims whose lease ran out `age` seconds ago; return their number."""
        left = await self._db.plainly(self._time.now) - timedelta(milliseconds=_millis(age))
        asked = {"state": LedgerState.PROCESSING.value, "due": {"$lte": left}}
        return await self._drop(asked, limit)

    async def _drop(self, over: Document, limit: int) -> int:
        async def drop(there: Collections) -> int:
            found = there.ledger.find(over, {"_id": 1}).limit(limit)
            ids = [one["_id"] async for one in found]
            # Asked again: somebody may have taken one up meanwhile.
            asked = {**over, "_id": {"$in": ids}}
            return (await there.ledger.delete_many(asked)).deleted_count

        return await self._db.plainly(drop) if limit > 0 else 0


class _Operations:
    def __init__(self, db: Database, now: Any, fields: KeyFields | None) -> None:
        self._db = db
        self._now = now
        self._fields = fields
        self._generations: dict[bytes, int] = {}  # of digests that were found

    async def find(self, names: Collection[Name]) -> dict[Name, Entry]:
        """Return the entries of keys."""
        by_id = {_digest(name): name for name in names}
        is_lapsed = {"lapsed": {"$lte": ["$due", self._now]}}
        steps: list[Document] = [
            {"$match": {"_id": {"$in": [*by_id]}}},
            {"$project": _FOUND | is_lapsed},
        ]

        async def look(there: Collections) -> list[Document]:
            return await (await there.ledger.aggregate(steps)).to_list()

        found = await self._db.plainly(look)
        return {by_id[one["_id"]]: self._entry(one) for one in found}

    async def claim_new(self, claims: Mapping[Name, Entry], lease: float) -> dict[Name, Entry]:
        """Return the entries of keys."""
        return await self.find(claims)

    async def write(
        self, claims: Mapping[Name, Entry], found: Mapping[Name, Entry], lease: float
    ) -> Collection[Name]:
        """Write claims unless somebody has changed the entry; return the keys written."""
        span = _millis(lease)
        writes = [self._claim(name, found.get(name), one, span) for name, one in claims.items()]
        if await self._written(writes) == len(writes):
            return claims.keys()
        now = await self.find(claims)
        return [name for name, one in now.items() if one.token == claims[name].token]

    async def finish(self, ended: Sequence[Ended], ttl: float) -> Collection[Ended]:
        """Write outcomes of claims that still have their token; return those that had."""
        expire_at = {"$add": [self._now, _millis(ttl)]}
        ends = [
            UpdateOne(
                {
                    "_id": _digest(name),
                    "token": token,
                    "state": {"$in": [LedgerState.PROCESSING.value, state.value]},
                },
                [
                    {
                        "$set": {
                            "state": state.value,
                            "expire_at": expire_at,
                            "path": ended_path(self._now, state.value),
                            **self._ended(state.value, expire_at),
                        }
                    }
                ],
            )
            for name, token, state in ended
        ]
        if await self._written(ends) == len(ends):
            return ended
        found = await self.find({name for name, _, _ in ended})
        return {(name, entry.token, entry.state) for name, entry in found.items()}

    async def _written(self, changes: Sequence[UpdateOne]) -> int:
        """Write each change that still applies; return their number."""

        async def write(there: Collections) -> int:
            try:
                done = await there.ledger.bulk_write(changes, ordered=False)
            except BulkWriteError as error:
                # Others made the same document at once.
                codes = {one["code"] for one in error.details["writeErrors"]}
                if codes != {_DUPLICATE}:
                    raise
                return -1
            return done.matched_count + done.upserted_count

        return await self._db.plainly(write)

    def _claim(self, name: Name, before: Entry | None, after: Entry, lease: int) -> UpdateOne:
        which: Document = {"_id": _digest(name)}
        if before is None:
            which["token"] = {"$exists": False}
        else:
            which |= {"token": before.token, "state": before.state.value}
        claim = {
            "_id": "$_id",
            "mailbox": {"$literal": stored(name[0])},  # this and the key: for people
            "key": {"$literal": stored(name[1])},
            "generation": after.generation,
            "state": LedgerState.PROCESSING.value,
            "holder": {"$literal": octets(after.holder)},
            "token": after.token,
            "due": {"$add": [self._now, lease]},
            "path": begun_path(self._now, after.generation),
            **self._begun(name, after.generation),
        }
        if after.digests:
            claim["digests"] = {"$literal": self._digests(after.digests, after.generation)}
        return UpdateOne(which, [{"$replaceWith": claim}], upsert=before is None)

    def _begun(self, name: Name, generation: int) -> Document:
        """Return the fields for others of a key that is claimed."""
        if (fields := self._fields) is None:
            return {}
        made = {"$cond": [_is_new(generation), 0, {"$ifNull": [f"${fields.attempts}", 0]}]}
        return {
            fields.key: {"$literal": stored(name[1])},
            fields.state: LedgerState.PROCESSING.value,
            fields.attempts: {"$add": [made, 1]},
            fields.first_seen_at: {"$ifNull": [f"${fields.first_seen_at}", self._now]},
            fields.changed_at: self._now,
        }

    def _ended(self, state: str, expire_at: Document) -> Document:
        """Return the fields for others of a key that is finished."""
        if (fields := self._fields) is None:
            return {}
        return {fields.state: state, fields.changed_at: self._now, fields.expires_at: expire_at}

    def _digests(self, digests: bytes, generation: int) -> list[Document]:
        """Return digests one by one, each with the generation that was claimed with it."""
        *older, own = (digests[n : n + DIGEST] for n in range(0, len(digests), DIGEST))
        told = [{"generation": self._generations[one], "digest": one} for one in older]
        return [*told, {"generation": generation, "digest": own}]

    def _entry(self, found: Document) -> Entry:
        digests = found.get("digests", ())
        self._generations |= {one["digest"]: one["generation"] for one in digests}
        return Entry(
            found["generation"],
            LedgerState(found["state"]),
            found["holder"].decode("utf-8", "surrogatepass"),
            found["token"],
            b"".join(one["digest"] for one in digests) or None,
            found["lapsed"],
        )


def _millis(seconds: float) -> int:
    return ceil(min(max(0.0, seconds), _LONGEST_TIME) * 1000)


def _digest(name: Name) -> bytes:
    mailbox = octets(name[0])
    told = b"%d:%b%b" % (len(mailbox), mailbox, octets(name[1]))
    return blake2b(told, digest_size=16).digest()
