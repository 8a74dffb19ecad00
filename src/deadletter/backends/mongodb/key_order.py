"""Letters of one key in a campaign: each waits for the one before it to end."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.campaign import Outcome
from deadletter.core.errors import NotFound
from deadletter.core.escaping import stored
from deadletter.ports.letters import KeyProgress

from .campaigns import Course
from .schema import Collections, Document
from .times import number
from .turn import Turn


async def freed(turn: Turn, course: Course, limit: int) -> list[Document]:
    """Items whose turn has come; they are planned now."""
    if not course.keyed or limit <= 0:
        return []
    asked = {"ready": True, "campaign": course.seq}
    found = turn.there.items.find(asked, session=turn.session)
    items = await found.sort("ordinal", 1).limit(limit).to_list()
    if items:
        await turn.there.items.update_many(
            {"_id": {"$in": [item["_id"] for item in items]}},
            {"$set": {"outcome": Outcome.PLANNED.value}, "$unset": {"ready": ""}},
            session=turn.session,
        )
        letters = [item["letter"] for item in items]
        course.count(turn, Outcome.WAITING, Outcome.PLANNED, letters)
    return items


async def free_behind(turn: Turn, course: Course, letters: Sequence[int]) -> None:
    """Say that what waits behind these letters may go."""
    if course.keyed and letters:
        await turn.there.items.update_many(
            {"follows": {"$in": list(letters)}, **_waiting(course)},
            {"$set": {"ready": True}},
            session=turn.session,
        )


async def hold_behind(
    turn: Turn, course: Course, letters: Iterable[int], now: datetime
) -> None:
    """Hold back all that waits behind these letters."""
    if not course.keyed:
        return
    asked = {"follows": {"$in": list(letters)}, **_waiting(course)}
    heads = await turn.there.items.distinct("head", asked, session=turn.session)
    if not heads:
        return
    held = {"outcome": Outcome.HELD.value, "settled": number(now)}
    behind = {"head": {"$in": heads}, **_waiting(course)}
    items = turn.there.items.find(behind, {"letter": 1}, session=turn.session)
    changed = [item["letter"] async for item in items]
    await turn.there.items.update_many(
        behind, {"$set": held, "$unset": {"ready": ""}}, session=turn.session
    )
    course.count(turn, Outcome.WAITING, Outcome.HELD, changed)


async def progress(
    there: Collections, session: AsyncClientSession, campaign: str, limit: int
) -> KeyProgress:
    """How far the keys of a campaign have come."""
    found = await there.campaigns.find_one({"_id": stored(campaign)}, session=session)
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    course = Course(found)
    grouped = [
        {"$match": _waiting(course)},
        {"$group": {"_id": "$head", "n": {"$sum": 1}}},
    ]
    cursor = await there.items.aggregate(grouped, session=session)
    behind = {one["_id"]: one["n"] async for one in cursor}
    planned = {"outcome": Outcome.PLANNED.value, "campaign": course.seq}
    unsent = there.items.find(
        {"letter": {"$in": list(behind)}, **planned}, {"letter": 1}, session=session
    )
    not_started = sum([behind[one["letter"]] async for one in unsent])
    coming = there.items.find(planned, {"letter": 1}, session=session)
    sizes = [
        1 + behind.get(one["letter"], 0)
        async for one in coming.sort("ordinal", 1).limit(limit)
    ]
    return KeyProgress(sum(behind.values()) - not_started, tuple(sizes[:limit]))


def _waiting(course: Course) -> Document:
    return {"campaign": course.seq, "outcome": Outcome.WAITING.value}
