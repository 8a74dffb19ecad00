"""Groups of like failures: made by deaths, and how they stand."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.audit import DIED_AGAIN
from deadletter.core.failure import Trouble
from deadletter.core.grouping import (
    Asked,
    GroupLimit,
    GroupRule,
    Rules,
    as_of,
    day_of,
    followed,
    placed,
    regressed,
    regresses,
    said,
    versions_to_compare,
)
from deadletter.core.letter import DeadLetter, Group, GroupStatus, Standing, State
from deadletter.core.query.versions import Seen
from deadletter.core.text import shown, stored

from .database import Turn
from .letters_documents import number, time
from .letters_documents import placed as times_placed
from .schema import OFFICE, Collections, Document
from .search import literally

# New groups counted by kind and day, so that a flood of them ends in one.


async def limit_groups(
    turn: Turn, letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit, rules: Rules
) -> Sequence[DeadLetter]:
    """Return the letters in the groups they are to be kept in; new ones are counted."""
    letters, named = placed(letters, rules)
    new = limit.candidates(letters, named)
    if not new:
        return letters
    there, session = turn.there, turn.session
    names = {"_id": {"$in": [stored(name) for name in new]}}
    known = await there.groups.find(names, {"_id": 1}, session=session).to_list()
    found = [shown(one["_id"]) for one in known]
    limit.remember(found)
    for name in found:
        del new[name]
    if not new:
        return letters
    kinds = {"_id": {"$in": sorted(set(new.values()))}}
    counted = await there.kinds.find(kinds, session=session).to_list()
    # A clock that is behind at midnight must not begin a new day again.
    days = {one["_id"]: max(one["day"], day_of(now)) for one in counted}
    made = {one["_id"]: one["made"] for one in counted if one["day"] >= day_of(now)}
    kept, more = limit.divert(letters, new, made)
    changes = [
        UpdateOne(
            {"_id": kind},
            {"$set": {"day": days.get(kind, day_of(now)), "made": made.get(kind, 0) + n}},
            upsert=True,
        )
        for kind, n in more.items()
    ]
    if changes:
        await there.kinds.bulk_write(changes, session=session)
    return followed(kept, rules)


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


async def rules_if_any(turn: Turn) -> dict[str, tuple[GroupRule, ...]]:
    """The same; nothing is asked where the office knows that there are none."""
    if not turn.numbers.get(RULES):
        return {}
    return await rules(turn.there, turn.session)


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
        died, _ = times_placed(one["first"])
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
    if asked.statuses is not None:
        conditions.append(_standing_as(asked.statuses, asked.now))
    fields = [_FIELDS.get(name, name) for name in asked.order]
    if asked.start is not None:
        conditions.append(_behind(fields, asked.start))
    found = there.groups.find({"$and": conditions}, session=session)
    first = found.sort([(field, -1) for field in fields]).limit(asked.limit)
    return [group_of(one, asked.now) async for one in first]


async def counts(there: Collections, session: AsyncClientSession) -> dict[str, dict[State, int]]:
    """How many letters of each state, by source."""
    found: dict[str, dict[State, int]] = {}
    async for one in there.sources.find({}, session=session):
        if states := states_of(one):
            found[shown(one["_id"])] = states
    return found


async def standings(turn: Turn, names: Sequence[str]) -> dict[str, Standing]:
    """Return the standings of groups that exist."""
    asked = {"_id": {"$in": [stored(name) for name in names]}}
    found = turn.there.groups.find(asked, session=turn.session)
    return {shown(one["_id"]): _standing(one) async for one in found}


async def put_standing(turn: Turn, name: str, standing: Standing) -> None:
    """Write another standing of a group."""
    change = {"$set": _said(standing)}
    await turn.there.groups.update_one({"_id": stored(name)}, change, session=turn.session)


async def count_deaths(
    turn: Turn, deaths: Mapping[str, Sequence[DeadLetter]], now: datetime
) -> None:
    """Groups as these deaths leave them: resolved ones may not be so after all."""
    if not deaths:
        return
    names = {"_id": {"$in": [stored(name) for name in deaths]}}
    known = turn.there.groups.find(names, session=turn.session)
    found = {one["_id"]: one async for one in known}
    standings = {shown(name): _standing(one) for name, one in found.items()}
    heads = (letter.head for letters in deaths.values() for letter in letters)
    wanted = versions_to_compare(standings, heads)
    seen = await first_seen(turn.there, turn.session, wanted)
    for fingerprint, letters in deaths.items():
        before = found.get(stored(fingerprint))
        after = _died(before, letters) if before else _first(letters)
        if before is not None:
            after |= _regression(turn, before, letters, now, seen)
        turn.died(fingerprint, after, len(letters))


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
    """How many letters of each state, by a document that counts them."""
    states = document.get("states", {})
    return {State(state): n for state, n in states.items() if n > 0}


def _first(letters: Sequence[DeadLetter]) -> Document:
    times = [number(letter.head.dead_at) for letter in letters]
    return {
        "source": stored(letters[0].head.source),
        "first_seen": min(times),
        **_latest(letters),
        **_said(Standing()),
    }


def _died(before: Document, letters: Sequence[DeadLetter]) -> Document:
    times = [number(letter.head.dead_at) for letter in letters]
    changes: Document = {"first_seen": min(before["first_seen"], *times)}
    if max(times) >= before["last_seen"]:
        changes |= _latest(letters)
    return changes


def _latest(letters: Sequence[DeadLetter]) -> Document:
    # Of several at the same moment, the one that came last.
    latest = max(reversed(letters), key=lambda letter: letter.head.dead_at)
    head = latest.head
    return {
        "error_type": stored(head.error_type),
        "text": stored(head.error_text),
        "frame": stored(latest.frame),
        "trouble": head.trouble.value,
        "code": stored(head.code),
        "last_seen": number(head.dead_at),
        "last_seen_at": head.dead_at,  # for people
    }


def _regression(
    turn: Turn, before: Document, letters: Sequence[DeadLetter], now: datetime, seen: Seen
) -> Document:
    standing = _standing(before)
    if not regresses(standing, [letter.head for letter in letters], seen):
        return {}
    after = regressed(standing, now)
    detail = said(standing, after)
    fingerprint = letters[0].head.fingerprint
    turn.act("regress", fingerprint, DIED_AGAIN, at=now, detail=detail)
    return _said(after)


def document_of(group: Group) -> Document:
    """What a group says of itself, as a document; what it counts is not in it."""
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
        **_said(group.standing),
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
