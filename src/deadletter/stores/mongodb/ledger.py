"""
The ledger: what has been done, and who is doing what.

Every claim has a token of its own, so that each step may be repeated: whoever finds
its token in a document has it. Time is the server's.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import count
from math import ceil
from secrets import randbits
from typing import Any, Final

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from deadletter.core.text import stored
from deadletter.ports.engine import (
    REMEMBERED,
    LedgerClaim,
    LedgerKey,
    LedgerState,
    refused_claim,
    standing,
)

from .database import Database
from .letters_documents import octets
from .schema import Collections, Document

# The digests of the bodies that a key was claimed with, in its document.


def digests(digest: bytes | None, generation: int) -> Document:
    """The field of a key that is taken up with this body."""
    if digest is None:
        return {}
    of_others: Any = {
        "$filter": {
            "input": {"$ifNull": ["$digests", []]},
            "cond": {"$ne": ["$$this.generation", generation]},
        }
    }
    own = {"generation": generation, "digest": {"$literal": digest}}
    known = {"$slice": [{"$concatArrays": [of_others, [own]]}, -REMEMBERED]}
    # A key from before digests were kept: what it was finished with stays unknown.
    is_unknown = {
        "$and": [
            {"$ne": [{"$type": "$state"}, "missing"]},
            {"$lt": ["$generation", generation]},
            {"$not": [{"$isArray": "$digests"}]},
        ]
    }
    return {"digests": {"$cond": [is_unknown, "$$REMOVE", known]}}


def is_body(digest: bytes | None) -> Any:
    """Tell whether the last claim of the key had this body; unknown counts as yes."""
    if digest is None:
        return True
    last = {"$arrayElemAt": ["$digests.digest", -1]}
    return {"$eq": [{"$ifNull": [last, {"$literal": digest}]}, {"$literal": digest}]}


def known_digests(found: Document) -> bytes | None:
    """The digests of a key's document, one behind the other."""
    return b"".join(one["digest"] for one in found.get("digests", ())) or None


# The path of a key through its states, with the times: for people, in its document.

_RECEIVED: Final = "received"  # never where a key stands: whoever sees it begins
_LONGEST: Final = -50  # the latest steps


def begun(now: Any, generation: int) -> Document:
    """The path of a key that is taken up: for the first time, again, or replayed."""
    received = {"$cond": [_is_new(generation), [_step(_RECEIVED, now)], []]}
    return _on(received, [_step(LedgerState.PROCESSING.value, now)])


def ended(now: Any, state: str) -> Document:
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


_MOST: Final = (1 << 63) - 1
_LEFT: Final = [LedgerState.FAILED.value, LedgerState.DEAD_LETTERED.value]
_DUPLICATE: Final = 11000
_TRIES: Final = 5
_LEDGER_LONGEST: Final = 36_500 * 86_400.0  # seconds: a time that still is one


class ServerTime:
    """The server's clock, which all share."""

    expression: Any = "$$NOW"

    async def now(self, there: Collections) -> datetime:
        """What time it is there."""
        hello = await there.ledger.database.command("hello")
        time: datetime = hello["localTime"]
        return time


class MongodbLedger:
    """Idempotency: what has been done already, and what is being done now."""

    def __init__(self, db: Database, time: ServerTime | None = None) -> None:
        self._db = db
        self._time = time or ServerTime()
        self._tokens = count(randbits(40) << 22)

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """Claim keys for processing, in one go."""
        if not keys:
            return []
        asked = [(_digest(key), key, next(self._tokens)) for key in keys]
        now, span = self._time.expression, _millis(lease)
        claims = [_claim(id_, key, token, now, span) for id_, key, token in asked]
        await self._db.plainly(lambda there: _written(there, claims))
        found = await self._standing(id_ for id_, _, _ in asked)
        # Judged when all are done: a key asked for twice belongs to one of them.
        return [
            LedgerClaim(key, True, LedgerState(found[id_]["state"]), token)
            if found[id_]["token"] == token
            else refused_claim(key, *_finish(found[id_]))
            for id_, key, token in asked
        ]

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record how it ended; says for each if the claim was still ours."""
        if not outcomes:
            return []
        told = [(_digest(claim.key), claim.token, end.value) for claim, end in outcomes]
        now = self._time.expression
        expire_at = {"$add": [now, _millis(ttl)]}
        ends = [
            UpdateOne(
                {
                    "_id": id_,
                    "token": token,
                    "state": {"$in": [LedgerState.PROCESSING.value, state]},
                },
                [{"$set": _finished(now, state, expire_at)}],
            )
            for id_, token, state in told
        ]
        await self._db.plainly(lambda there: _written(there, ends))
        found = await self._standing(id_ for id_, _, _ in told)
        stands = {(id_, one["token"], one["state"]) for id_, one in found.items()}
        return [one in stands for one in told]

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """How keys stand, without claiming them."""
        if not keys:
            return []
        ids = [_digest(key) for key in keys]
        found = await self._standing(ids)
        return [
            standing(key, found[id_]["generation"], *_finish(found[id_])) if id_ in found else None
            for key, id_ in zip(keys, ids, strict=True)
        ]

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """Drop finished keys whose time is over, and claims left long ago."""
        now = await self._db.plainly(self._time.now)
        gone = await self._drop({"expire_at": {"$lte": now}}, limit)
        if abandoned is None or gone >= limit:
            return gone
        left = now - timedelta(milliseconds=_millis(abandoned))
        asked = {"state": LedgerState.PROCESSING.value, "due": {"$lte": left}}
        return gone + await self._drop(asked, limit - gone)

    async def _drop(self, over: Document, limit: int) -> int:
        async def drop(there: Collections) -> int:
            found = there.ledger.find(over, {"_id": 1}).limit(limit)
            ids = [one["_id"] async for one in found]
            # Asked again: somebody may have taken one up meanwhile.
            asked = {**over, "_id": {"$in": ids}}
            return (await there.ledger.delete_many(asked)).deleted_count

        return await self._db.plainly(drop) if limit > 0 else 0

    async def _standing(self, ids: Iterable[bytes]) -> dict[bytes, Document]:
        asked = {"_id": {"$in": list(dict.fromkeys(ids))}}

        async def look(there: Collections) -> dict[bytes, Document]:
            fields = {"generation": 1, "state": 1, "token": 1, "digests": 1}
            return {one["_id"]: one async for one in there.ledger.find(asked, fields)}

        return await self._db.plainly(look)


async def _written(there: Collections, changes: Sequence[UpdateOne]) -> None:
    for tries in range(_TRIES):
        try:
            await there.ledger.bulk_write(changes)
        except BulkWriteError as error:
            # Two made the same document at once: it is there now.
            codes = {one["code"] for one in error.details["writeErrors"]}
            if codes != {_DUPLICATE} or tries == _TRIES - 1:
                raise
        else:
            return
    raise DuplicateKeyError("others made the same keys all the time")


def _claim(id_: bytes, key: LedgerKey, token: int, now: Any, lease: int) -> UpdateOne:
    """
    Give the claim for a new key or generation, after a failure, when an earlier
    claim has run out, and to the message that holds it already: delivered again,
    its earlier worker is fenced.
    """
    generation = min(key.generation, _MOST)
    holder = {"$literal": octets(key.holder)}
    again: list[Document] = [{"$lte": ["$due", now]}]
    if key.holder:
        again.append({"$and": [{"$eq": ["$holder", holder]}, is_body(key.digest)]})
    is_open = {
        "$or": [
            {"$eq": [{"$type": "$state"}, "missing"]},
            {"$lt": ["$generation", generation]},
            {
                "$and": [
                    {"$eq": ["$generation", generation]},
                    {
                        "$or": [
                            {"$in": ["$state", _LEFT]},
                            {
                                "$and": [
                                    {"$eq": ["$state", LedgerState.PROCESSING.value]},
                                    {"$or": again},
                                ]
                            },
                        ]
                    },
                ]
            },
        ]
    }
    mine = {
        "_id": "$_id",
        "mailbox": {"$literal": stored(key.mailbox)},  # this and the key: for people
        "key": {"$literal": stored(key.key)},
        "generation": generation,
        "state": LedgerState.PROCESSING.value,
        "holder": holder,
        "token": token,
        "due": {"$add": [now, lease]},
        "path": begun(now, generation),
        **digests(key.digest, generation),
    }
    change = {"$replaceWith": {"$cond": [is_open, mine, "$$ROOT"]}}
    return UpdateOne({"_id": id_}, [change], upsert=True)


def _finished(now: Any, state: str, expire_at: Document) -> Document:
    return {"state": state, "expire_at": expire_at, "path": ended(now, state)}


def _finish(found: Document) -> tuple[LedgerState, bytes | None]:
    return LedgerState(found["state"]), known_digests(found)


def _millis(seconds: float) -> int:
    return ceil(min(max(0.0, seconds), _LEDGER_LONGEST) * 1000)


def _digest(key: LedgerKey) -> bytes:
    mailbox = octets(key.mailbox)
    told = b"%d:%b%b" % (len(mailbox), mailbox, octets(key.key))
    return blake2b(told, digest_size=16).digest()
