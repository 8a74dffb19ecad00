"""When each version of an application was first seen at a mailbox."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.escaping import shown, stored
from deadletter.core.versions import Seen

from .schema import OFFICE, Collections, Document
from .times import number, placed, time

_FILLED: Final = "versions_filled"  # of the office: letters of before are in here
_OF_LETTERS: Final[list[Document]] = [
    {"$match": {"version": {"$gt": ""}}},
    {
        "$group": {
            "_id": {"source": "$source", "version": "$version"},
            "first": {"$min": "$place"},
        }
    },
]


async def see(there: Collections, session: AsyncClientSession, seen: Seen) -> None:
    """Write down versions that were seen; an earlier time is kept."""
    changes = [
        UpdateOne(
            {"_id": _name(name)}, {"$min": {"first_seen": number(at)}}, upsert=True
        )
        for name, at in seen.items()
    ]
    if changes:
        await there.versions.bulk_write(changes, session=session)


async def first_seen(
    there: Collections, session: AsyncClientSession, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
    if not names:
        return {}
    asked = {"_id": {"$in": [_name(name) for name in names]}}
    return _seen(await there.versions.find(asked, session=session).to_list())


async def all_seen(
    there: Collections, session: AsyncClientSession, most: int
) -> dict[tuple[str, str], datetime]:
    """Return when each version was first seen; at most that many versions."""
    return _seen(await there.versions.find({}, session=session, limit=most).to_list())


async def fill(there: Collections) -> None:
    """Write down the versions of letters that were kept before versions were."""
    office = {"_id": OFFICE, _FILLED: {"$exists": False}}
    if await there.office.find_one(office) is None:
        return
    async for one in await there.letters.aggregate(_OF_LETTERS, allowDiskUse=True):
        died, _ = placed(one["first"])
        seen = {"$min": {"first_seen": number(died)}}
        await there.versions.update_one({"_id": one["_id"]}, seen, upsert=True)
    await there.office.update_one(office, {"$set": {_FILLED: True}})


def _name(name: tuple[str, str]) -> Document:
    source, version = name
    return {"source": stored(source), "version": stored(version)}


def _seen(found: Sequence[Document]) -> dict[tuple[str, str], datetime]:
    return {
        (shown(name["source"]), shown(name["version"])): time(one["first_seen"])
        for one in found
        if (name := one["_id"])["version"]  # the first document has none
    }
