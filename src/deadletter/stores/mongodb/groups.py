"""Groups of like failures: made by deaths, and how they stand."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.failure import Trouble
from deadletter.core.grouping import SEARCHED, Asked, GroupRule, StatusCount, as_of, grown
from deadletter.core.letter import Group, GroupStatus, Standing, State
from deadletter.core.query.versions import Seen
from deadletter.core.text import shown, stored

from .database import Turn
from .letters_documents import number, placed, time
from .schema import OFFICE, Collections, Document
from .search import contained, literally

RULES: Final = "group_rules"  # their number, in the document of the office


async def rules(
    there: Collections, session: AsyncClientSession
) -> dict[str, tuple[GroupRule, ...]]:
    """Return the merges and splits that people decided, by group."""
    found = there.rules.find({"_id": {"$ne": ""}}, session=session)
    return {
        shown(one["_id"]): msgspec.json.decode(one["rules"], type=tuple[GroupRule, ...])
        async for one in found
    }


# When each version of an application was first seen at a mailbox.

_FILLED: Final = "versions_filled"  # of the office: letters of before are in here
_OF_LETTERS: Final[list[Document]] = [
    {"$match": {"version": {"$gt": ""}}},
    {"$group": {"_id": {"source": "$source", "version": "$version"}, "first": {"$min": "$place"}}},
]


async def see(there: Collections, session: AsyncClientSession, seen: Seen) -> None:
    """Write down versions that were seen; an earlier time is kept."""
    changes = [
        UpdateOne({"_id": _name(name)}, {"$min": {"first_seen": number(at)}}, upsert=True)
        for name, at in seen.items()
    ]
    if changes:
        await there.versions.bulk_write(changes, session=session)


async def first_seen(
    there: Collections, session: AsyncClientSession, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], datetime]:
    """Return when these versions were first seen, those that were."""
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


_CONTENT: Final = ("text", "frame", "code")  # what came out of letters
_FIELDS: Final = {"fingerprint": "_id"}  # those that have another name here


async def groups(there: Collections, session: AsyncClientSession, asked: Asked) -> list[Group]:
    """Groups, latest or largest first."""
    if asked.limit < 1:
        return []
    conditions: list[Document] = [{"total": {"$gt": 0}}]
    if asked.source is not None:
        conditions.append({"source": stored(asked.source)})
    if asked.only_open:
        conditions.append({"open": {"$gt": 0}})
    if asked.named:
        conditions.append({"_id": {"$regex": rf"\A{literally(asked.named)}"}})
    if asked.pattern:
        found = {"$regex": contained(asked.pattern)}
        conditions.append({"$or": [{name: found} for name in SEARCHED]})
    if asked.statuses is not None:
        conditions.append(_standing_as(asked.statuses, asked.now))
    fields = [_FIELDS.get(name, name) for name in asked.order]
    if asked.start is not None:
        conditions.append(_behind(fields, asked.start))
    listed = there.groups.find({"$and": conditions}, session=session)
    first = listed.sort([(field, -1) for field in fields]).limit(asked.limit)
    return [group_of(one, asked.now) async for one in first]


async def counts(there: Collections, session: AsyncClientSession) -> dict[str, dict[State, int]]:
    """Return the number of letters in each state, by source."""
    found: dict[str, dict[State, int]] = {}
    async for one in there.sources.find({}, session=session):
        if states := states_of(one):
            found[shown(one["_id"])] = states
    return found


async def count_groups(
    there: Collections, session: AsyncClientSession, sources: Sequence[str], now: datetime
) -> dict[GroupStatus, StatusCount]:
    """Return the number of groups by their current status."""
    asked: Document = {"total": {"$gt": 0}}
    if sources:
        asked["source"] = {"$in": [stored(one) for one in sources]}
    over = {"$and": [{"$ne": ["$until", None]}, {"$lte": ["$until", number(now)]}]}
    standing = {"$cond": [over, GroupStatus.ONGOING.value, "$status"]}
    opened = {"$sum": {"$cond": [{"$gt": ["$open", 0]}, 1, 0]}}
    stages: list[Document] = [
        {"$match": asked},
        {"$group": {"_id": standing, "n": {"$sum": 1}, "open": opened}},
    ]
    found = await there.groups.aggregate(stages, session=session)
    return {GroupStatus(one["_id"]): StatusCount(one["n"], one["open"]) async for one in found}


async def standings(turn: Turn, names: Sequence[str]) -> dict[str, Standing]:
    """Return the standings of groups that exist."""
    asked = {"_id": {"$in": [stored(name) for name in names]}}
    found = turn.there.groups.find(asked, session=turn.session)
    return {shown(one["_id"]): _standing(one) async for one in found}


async def put_standing(turn: Turn, name: str, standing: Standing) -> None:
    """Write another standing of a group."""
    change = {"$set": _said(standing)}
    await turn.there.groups.update_one({"_id": stored(name)}, change, session=turn.session)


async def blank(turn: Turn, deleted: Mapping[str, int]) -> list[str]:
    """Delete what groups say of letters that are all deleted; which ones these were."""
    there, session = turn.there, turn.session
    names = {"_id": {"$in": [stored(name) for name in deleted]}}
    gone = []
    for found in await there.groups.find(names, session=session).to_list():
        name = shown(found["_id"])
        left = sum(states_of(found).values()) - deleted[name]
        if left <= 0 and any(found[field] for field in _CONTENT):
            changes = {"$set": dict.fromkeys(_CONTENT, "")}
            asked = {"_id": found["_id"]}
            await there.groups.update_one(asked, changes, session=session)
            gone.append(name)
    return sorted(gone)


def states_of(document: Document) -> dict[State, int]:
    """Return the number of letters in each state from a counting document."""
    states = document.get("states", {})
    return {State(state): n for state, n in states.items() if n > 0}


def after(before: Document | None, deaths: Group) -> Document:
    """Return what deaths change in the document of a group, except its counts."""
    if before is None:
        return document_of(deaths)
    return _shown(grown(group_of(before, deaths.last_seen), deaths))


def document_of(group: Group) -> Document:
    """Return a group as a document, without its counts."""
    return _shown(group) | _said(group.standing)


def _shown(group: Group) -> Document:
    return {
        "source": stored(group.source),
        "first_seen": number(group.first_seen),
        "error_type": stored(group.error_type),
        "text": stored(group.text),
        "frame": stored(group.frame),
        "trouble": group.trouble.value,
        "code": stored(group.code),
        "last_seen": number(group.last_seen),
        "last_seen_at": group.last_seen,  # for people
    }


def _behind(fields: Sequence[str], start: Sequence[int | datetime | str]) -> Document:
    # Less in one field, and the same in all before it.
    place = [_value(one) for one in start]
    return {
        "$or": [
            {**dict(zip(fields[:n], place, strict=False)), field: {"$lt": place[n]}}
            for n, field in enumerate(fields)
        ]
    }


def _value(one: int | datetime | str) -> int | str:
    match one:
        case datetime():
            return number(one)
        case str():
            return stored(one)
    return one


def _standing_as(statuses: frozenset[GroupStatus], now: datetime) -> Document:
    # As it stands now, see `core.grouping.as_of`.
    over = {"until": {"$lte": number(now)}}
    still: Document = {"status": {"$in": sorted(statuses)}, "$nor": [over]}
    return {"$or": [still, over]} if GroupStatus.ONGOING in statuses else still


def _said(standing: Standing) -> Document:
    return {
        "status": standing.status.value,
        "since": number(standing.since),
        "owner": stored(standing.owner),
        "note": stored(standing.note),
        "until": number(standing.until),
        "version": stored(standing.version),
    }


def _standing(found: Document) -> Standing:
    return Standing(
        status=GroupStatus(found["status"]),
        since=time(found["since"]),
        owner=shown(found["owner"]),
        note=shown(found["note"]),
        until=time(found["until"]),
        version=shown(found["version"]),
    )


def group_of(found: Document, now: datetime) -> Group:
    """The group in a document."""
    return Group(
        fingerprint=shown(found["_id"]),
        source=shown(found["source"]),
        error_type=shown(found["error_type"]),
        text=shown(found["text"]),
        frame=shown(found["frame"]),
        trouble=Trouble(found["trouble"]),
        code=shown(found["code"]),
        first_seen=time(found["first_seen"]),
        last_seen=time(found["last_seen"]),
        counts=states_of(found),
        total=found["total"],
        standing=as_of(_standing(found), now),
    )
