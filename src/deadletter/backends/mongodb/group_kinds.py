"""New groups counted by kind and day, so that a flood of them ends in one."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import UpdateOne

from deadletter.core.escaping import shown, stored
from deadletter.core.group_limit import GroupLimit, day_of
from deadletter.core.letter import DeadLetter
from deadletter.core.regrouping import Rules, followed, placed

from .turn import Turn


async def limit_groups(
    turn: Turn,
    letters: Sequence[DeadLetter],
    now: datetime,
    limit: GroupLimit,
    rules: Rules,
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
            {
                "$set": {
                    "day": days.get(kind, day_of(now)),
                    "made": made.get(kind, 0) + n,
                }
            },
            upsert=True,
        )
        for kind, n in more.items()
    ]
    if changes:
        await there.kinds.bulk_write(changes, session=session)
    return followed(kept, rules)
