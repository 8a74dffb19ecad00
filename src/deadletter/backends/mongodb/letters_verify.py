"""What does not add up in an office: everything is counted again and compared."""

from collections import Counter
from typing import Any, Final

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.escaping import shown
from deadletter.core.ids import body_digest
from deadletter.core.letter import OPEN

from .audit import problems as audit_problems
from .letters_documents import bodies
from .schema import OFFICE, Collections, Document

SLICE: Final = 200  # bodies at a time
_NAMED: Final = 10  # problems of one kind; more of them would say nothing new

_BY_STATE: Final[list[Document]] = [
    {
        "$group": {
            "_id": {"source": "$source", "group": "$fingerprint", "state": "$state"},
            "n": {"$sum": 1},
        }
    }
]
_BY_OUTCOME: Final[list[Document]] = [
    {
        "$group": {
            "_id": {"campaign": "$campaign", "outcome": "$outcome"},
            "n": {"$sum": 1},
        }
    }
]
_CONTENTS: Final = dict.fromkeys(("seq", "digest", "body", "died"), 1)


async def problems(there: Collections, session: AsyncClientSession) -> list[str]:
    """What is wrong, one sentence each, but for bodies (see `damaged`)."""
    return [
        *await _miscounted(there, session),
        *await _campaigns(there, session),
        *await _parts(there, session),
        *(await audit_problems(there, session))[:_NAMED],
    ]


async def damaged(
    there: Collections, session: AsyncClientSession, after: str
) -> tuple[str | None, list[str]]:
    """Bodies behind `after` that are not as they were kept, and where to go on."""
    asked = {"_id": {"$gt": after}}
    cursor = there.letters.find(asked, _CONTENTS, session=session)
    letters = await cursor.sort("_id", 1).limit(SLICE).to_list()
    last = letters[-1]["_id"] if len(letters) == SLICE else None
    died = {"_id": {"$in": [one["_id"] for one in letters if "died" in one]}}
    letters += await there.originals.find(died, _CONTENTS, session=session).to_list()
    by_seq = await bodies(there, session, letters)
    found = [
        f"the body of letter {one['_id']} is not the one that was kept"
        for one in letters
        if body_digest(by_seq[one["seq"]]) != one["digest"]
    ]
    return last, found


async def _miscounted(there: Collections, session: AsyncClientSession) -> list[str]:
    by_source: Counter[Any] = Counter()
    by_group: Counter[Any] = Counter()
    async for one in await there.letters.aggregate(_BY_STATE, session=session):
        key, n = one["_id"], one["n"]
        by_source[key["source"], key["state"]] += n
        by_group[key["group"], key["state"]] += n
        by_group[key["group"], "open"] += n if key["state"] in OPEN else 0
    office = await there.office.find_one({"_id": OFFICE}, session=session)
    assert office is not None
    kept, purged, expired = office["kept"], office["purged"], office["expired"]
    present, expected = by_source.total(), kept - purged - expired
    found: list[str] = []
    if present != expected:
        found.append(
            f"{kept} letters were kept, {purged} purged and {expired} expired,"
            f" but {present} are there instead of {expected}"
        )
    for what, collection, real in (
        ("source", there.sources, by_source),
        ("group", there.groups, by_group),
    ):
        told: Counter[Any] = Counter()
        async for one in collection.find({}, session=session):
            told |= {(one["_id"], s): n for s, n in one.get("states", {}).items()}
            told[one["_id"], "open"] += one.get("open", 0)
        found += _differences(what, told, real)
    return found


def _differences(what: str, told: Counter[Any], real: Counter[Any]) -> list[str]:
    different = [key for key in {**told, **real} if told[key] != real[key]]
    return [
        f"{what} {shown(name)} ({state}) should have {told[name, state]} letters,"
        f" but there are {real[name, state]}"
        for name, state in sorted(different)[:_NAMED]
    ]


async def _campaigns(there: Collections, session: AsyncClientSession) -> list[str]:
    real: Counter[Any] = Counter()
    async for one in await there.items.aggregate(_BY_OUTCOME, session=session):
        real[one["_id"]["campaign"], one["_id"]["outcome"]] = one["n"]
    found: list[str] = []
    async for one in there.campaigns.find({}, session=session):
        counts, seq = one["counts"], one["seq"]
        outcomes = {outcome for campaign, outcome in real if campaign == seq}
        found += [
            f"campaign {shown(one['_id'])} says {counts.get(outcome, 0)} of its letters"
            f" are {outcome}, but {real[seq, outcome]} are"
            for outcome in sorted(outcomes | counts.keys())
            if counts.get(outcome, 0) != real[seq, outcome]
        ]
    return found[:_NAMED]


async def _parts(there: Collections, session: AsyncClientSession) -> list[str]:
    seqs = await there.parts.distinct("letter", session=session)
    asked = {"seq": {"$in": seqs}}
    letters = there.letters.find(asked, {"seq": 1}, session=session)
    known = {one["seq"] async for one in letters}
    known |= set(await there.originals.distinct("seq", asked, session=session))
    gone = [seq for seq in seqs if seq not in known]
    return [f"contents {seq} belong to no letter" for seq in gone[:_NAMED]]
