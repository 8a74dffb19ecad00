"""
Takes over the collections of a gateway that was not built on deadletter.

    python -m courier.migration [--dry-run]

Stop the old gateway first. Its documents are moved to `dead_letter_events_before` and
`processed_events_before`, and stay there. From there dead events become letters in the state of
their `reviewStatus`, and finished keys go into the ledger with the time they had left. Events
that were still in progress are in the queue: the worker processes them. The command can be
repeated after a crash.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from msgspec import Struct
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from deadletter import ConfigError, DeadLetterError, open_engine
from deadletter.core.letter import By
from deadletter.office.archive_import import take_in
from deadletter.ports import Engine, Ledger, LedgerKey, LedgerState
from deadletter.profiles.courier_records import KeyRecord, key_of_record, letter_of_record
from deadletter.system import SystemClock

from .settings import MAIN, Settings, of_this_process

LETTERS: Final = "dead_letter_events"
KEYS: Final = "processed_events"
BEFORE: Final = "_before"
ACTOR: Final = By("courier.migration", "taken over")

# Documents that deadletter has written have these fields.
_FOREIGN: Final[dict[str, dict[str, Any]]] = {LETTERS: {"place": None}, KEYS: {"token": None}}
_STATES: Final = {"processed": LedgerState.PROCESSED, "dead_lettered": LedgerState.DEAD_LETTERED}
_BATCH: Final = 500
_LEASE: Final = 60.0
_HOUR: Final = 3600.0

Database = AsyncDatabase[dict[str, Any]]


class Taken(Struct, frozen=True, kw_only=True):
    """The result of a migration."""

    letters: int
    keys: int
    left: int  # keys that are in progress or expired


@asynccontextmanager
async def opened_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database of the office without deadletter."""
    async with AsyncMongoClient[dict[str, Any]](settings.mongodb_url, tz_aware=True) as client:
        yield client.get_default_database("deadletter")


async def check_taken_over(settings: Settings) -> None:
    """Raise ConfigError if the collections are those of another gateway."""
    if not settings.mongodb_url.startswith("mongodb"):
        return
    async with opened_database(settings) as db:
        is_foreign = await db[LETTERS].find_one(_FOREIGN[LETTERS], {"_id": 1}) is not None
        if is_foreign or await _foreign_indexes(db, KEYS):
            raise ConfigError(
                f"{LETTERS} or {KEYS} in {db.name} belong to a gateway without deadletter: stop"
                " that gateway, then run `python -m courier.migration` once"
            )


async def migrate(settings: Settings, *, ttl: float) -> Taken:
    """Take over everything; `ttl` is for keys that do not say how long they are kept."""
    async with opened_database(settings) as db:
        for name in (LETTERS, KEYS):
            await _set_aside(db, name)
        engine = await open_engine(settings.queue_url, office=settings.office_url)
        try:
            letters = await _take_letters(db, engine)
            assert engine.ledger is not None  # MongoDB has one
            keys, left = await _take_keys(db, engine.ledger, ttl)
        finally:
            await engine.close()
    return Taken(letters=letters, keys=keys, left=left)


async def count(settings: Settings) -> dict[str, int]:
    """Return the number of documents that a migration would move, by collection."""
    async with opened_database(settings) as db:
        return {name: await db[name].count_documents(_FOREIGN[name]) for name in (LETTERS, KEYS)}


async def _foreign_indexes(db: Database, name: str) -> list[str]:
    """Return indexes that delete documents unasked, or refuse those of deadletter."""
    indexes = await db[name].index_information()
    fields = {index: [field for field, _ in one["key"]] for index, one in indexes.items()}
    return [index for index, one in fields.items() if one in (["expiresAt"], ["idempotencyKey"])]


async def _set_aside(db: Database, name: str) -> None:
    for index in await _foreign_indexes(db, name):
        await db[name].drop_index(index)
    copy = [{"$match": _FOREIGN[name]}, {"$merge": {"into": name + BEFORE}}]
    await (await db[name].aggregate(copy)).to_list()
    await db[name].delete_many(_FOREIGN[name])


async def _waiting(db: Database, name: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield documents that were not taken over yet; each batch is marked when it is done."""
    before = db[name + BEFORE]
    while batch := await before.find({"takenOver": None}).limit(_BATCH).to_list():
        yield batch
        ids = {"_id": {"$in": [one["_id"] for one in batch]}}
        await before.update_many(ids, {"$set": {"takenOver": True}})


async def _take_letters(db: Database, engine: Engine) -> int:
    assert engine.letters is not None  # an engine without is never opened alone
    taken = 0
    async for batch in _waiting(db, LETTERS):
        now = SystemClock().now()
        letters = [letter_of_record(str(one["_id"]), one, now=now) for one in batch]
        taken += (await take_in(engine.letters, letters, ACTOR, archive=LETTERS)).added
    return taken


async def _take_keys(db: Database, ledger: Ledger, ttl: float) -> tuple[int, int]:
    taken = left = 0
    async for batch in _waiting(db, KEYS):
        now = SystemClock().now()
        finished = [
            (hours, record)
            for record in map(key_of_record, batch)
            if record.status in _STATES and (hours := _hours_left(record, now, ttl)) > 0
        ]
        left += len(batch) - len(finished)
        for hours, some in groupby(sorted(finished, key=lambda one: one[0]), lambda one: one[0]):
            taken += await _remember(ledger, [record for _, record in some], hours * _HOUR)
    return taken, left


def _hours_left(record: KeyRecord, now: datetime, ttl: float) -> int:
    seconds = record.seconds_left(now)
    return -int(-(ttl if seconds is None else seconds) // _HOUR)  # rounded up


async def _remember(ledger: Ledger, records: Sequence[KeyRecord], ttl: float) -> int:
    keys = [LedgerKey.of_message(MAIN, one.idempotency_key, 0, "migration") for one in records]
    claims = await ledger.begin(keys, lease=_LEASE)
    ends = [
        (claim, _STATES[record.status])
        for claim, record in zip(claims, records, strict=True)
        if claim.mine
    ]
    return sum(await ledger.finish(ends, ttl=ttl))


def main() -> int:
    """Migrate, or with --dry-run only count. Return the exit code."""
    parser = argparse.ArgumentParser(prog="courier.migration", allow_abbrev=False)
    parser.add_argument("--dry-run", action="store_true", help="only count; change nothing")
    is_dry = parser.parse_args().dry_run
    settings, _ = of_this_process()
    try:
        if is_dry:
            found = asyncio.run(count(settings))
            print(f"{found[LETTERS]} dead events and {found[KEYS]} keys would be taken over.")
            return 0
        taken = asyncio.run(migrate(settings, ttl=settings.processed_events_ttl_days * 86_400))
    except DeadLetterError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{taken.letters} dead events and {taken.keys} finished keys taken over.")
    if taken.left:
        print(f"{taken.left} keys were in progress or expired; they stay in {KEYS}{BEFORE}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
