"""What does not add up in an office: everything is counted again and compared."""

from collections import Counter, defaultdict
from typing import Any, Final

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.audit import Examination, ItemSum, SealedLetter, Sums
from deadletter.core.seals import MASK, NAMED, Ends, Sealing, Start
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Seals
from deadletter.office.transactions.verification import Counts, miscounted

from .audit import read_into
from .database import Turn
from .letters_documents import WHOLE, bodies, sealed
from .schema import OFFICE, Collections, Document

SLICE: Final = 200  # bodies at a time

_BY_STATE: Final[list[Document]] = [
    {
        "$group": {
            "_id": {"source": "$source", "group": "$fingerprint", "state": "$state"},
            "n": {"$sum": 1},
        }
    }
]
_BY_OUTCOME: Final[list[Document]] = [
    {"$group": {"_id": {"campaign": "$campaign", "outcome": "$outcome"}, "n": {"$sum": 1}}}
]
_ITEM: Final = dict.fromkeys(("campaign", "letter", "outcome"), 1)


async def survey(there: Collections, session: AsyncClientSession, sealing: Sealing) -> Examination:
    """Examine everything at one moment, but for what is in letters (see `letters`)."""
    office = await there.office.find_one({"_id": OFFICE}, session=session)
    assert office is not None
    examination = await _summed(there, session, sealing, office)
    examination.find(
        *await _miscounted(there, session, office),
        *await _campaigns(there, session),
        *await _parts(there, session),
    )
    await read_into(there, session, examination.chain)
    ends = (office[name] for name in ("audit_seq", "audit_hash", "purged", "expired"))
    examination.compare(Ends(*ends), await _totals(there, session))
    return examination


async def letters(
    there: Collections, session: AsyncClientSession, after: str
) -> tuple[list[tuple[int, SealedLetter]], str | None]:
    """Return some letters behind `after` with their seals, and where to continue."""
    cursor = there.letters.find({"_id": {"$gt": after}}, WHOLE, session=session)
    found = await cursor.sort("_id", 1).limit(SLICE).to_list()
    last = found[-1]["_id"] if len(found) == SLICE else None
    died = {"_id": {"$in": [one["_id"] for one in found if "died" in one]}}
    originals = {one["_id"]: one async for one in there.originals.find(died, session=session)}
    by_seq = await bodies(there, session, [*found, *originals.values()])
    generations: defaultdict[int, list[int]] = defaultdict(list)
    taken = {"letter": {"$in": [one["seq"] for one in found]}, "generation": {"$gt": 0}}
    async for item in there.items.find(taken, session=session):
        generations[item["letter"]].append(item["generation"])
    return [
        (
            one["seq"],
            sealed(
                one,
                by_seq[one["seq"]],
                (original, by_seq[original["seq"]])
                if (original := originals.get(one["_id"]))
                else None,
                generations[one["seq"]],
            ),
        )
        for one in found
    ], last


async def write_seals(turn: Turn, letter: SealedLetter, seals: Seals) -> None:
    """Write new seals of a letter."""
    message, story, original = seals
    which = {"_id": stored(letter.head.id)}
    changes = {"$set": {"seal": message, "story_seal": story}}
    await turn.there.letters.update_one(which, changes, session=turn.session)
    if original is not None:
        died = {"$set": {"seal": original}}
        await turn.there.originals.update_one(which, died, session=turn.session)


async def rekey(turn: Turn) -> None:
    """Make sums of letters and campaigns anew with the first key, where they fit."""
    there, session, numbers = turn.there, turn.session, turn.numbers
    sealing = turn.sealing
    totals = await _totals(there, session)
    known = await _summed(there, session, sealing, numbers)
    outdated, marks = known.outdated(totals), sealing.marks()
    if outdated.letters:
        ids = there.letters.find({}, {"_id": 1}, session=session)
        kept = [marks.text(shown(one["_id"])) async for one in ids]
        numbers["marks_key"] = marks.key_id
        numbers["letter_marks"] = sum(kept) & MASK
        numbers["deaths"] = sum(totals.values())
        numbers["death_marks"] = marks.texts(totals)
    by_campaign: defaultdict[int, list[ItemSum]] = defaultdict(list)
    for one in outdated.items:
        by_campaign[one.campaign].append(one)
    for seq, some in by_campaign.items():
        sums: Counter[str] = Counter()
        async for item in there.items.find({"campaign": seq}, session=session):
            outcome = item["outcome"]
            sums[outcome] += marks.item(seq, item["letter"], outcome)
        if len(some) < len(known.item_sums_of(seq)):
            continue  # the others do not fit
        new = {outcome: total & MASK for outcome, total in sums.items()}
        changes = {"$set": {"marks": new, "marks_key": marks.key_id}}
        await there.campaigns.update_one({"seq": seq}, changes, session=session)


async def _summed(
    there: Collections, session: AsyncClientSession, sealing: Sealing, office: Document
) -> Examination:
    """Begin an examination with which letters and parts of campaigns there are."""
    sums = Sums(
        office.get("deaths", 0),
        office.get("death_marks", 0),
        office.get("letter_marks", 0),
        office.get("marks_key"),
    )
    examination = Examination(sealing, sums)
    async for one in there.letters.find({}, {"_id": 1}, session=session):
        examination.count_letter(shown(one["_id"]))
    async for one in there.campaigns.find({}, session=session):
        seq, key = one["seq"], one.get("marks_key")
        start = Start(*(shown(one[name]) for name in ("actor", "reason", "query")))
        examination.add_campaign(seq, shown(one["_id"]), start)
        marks = one.get("marks", {})
        for outcome in marks.keys() | one["counts"].keys():
            total = marks.get(outcome, 0)
            examination.add_item_sum(ItemSum(seq, outcome, total, key))
    async for one in there.items.find({}, _ITEM, session=session):
        examination.add_item(one["campaign"], one["letter"], one["outcome"])
    return examination


async def _totals(there: Collections, session: AsyncClientSession) -> dict[str, int]:
    groups = there.groups.find({}, {"total": 1}, session=session)
    return {shown(one["_id"]): one["total"] async for one in groups if one.get("total")}


async def _miscounted(
    there: Collections, session: AsyncClientSession, office: Document
) -> list[str]:
    letters = [
        (shown(one["_id"]["source"]), shown(one["_id"]["group"]), one["_id"]["state"], one["n"])
        async for one in await there.letters.aggregate(_BY_STATE, session=session)
    ]
    by_group: dict[tuple[str, str], int] = {}
    async for one in there.groups.find({}, session=session):
        name = shown(one["_id"])
        by_group |= {(name, state): n for state, n in one.get("states", {}).items()}
        by_group[name, "open"] = one.get("open", 0)
    by_source = {
        (shown(one["_id"]), state): n
        async for one in there.sources.find({}, session=session)
        for state, n in one.get("states", {}).items()
    }
    counts = Counts(office["kept"], office["purged"], office["expired"], by_source, by_group)
    return miscounted(letters, counts)


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
    return found[:NAMED]


async def _parts(there: Collections, session: AsyncClientSession) -> list[str]:
    seqs = await there.parts.distinct("letter", session=session)
    asked = {"seq": {"$in": seqs}}
    letters = there.letters.find(asked, {"seq": 1}, session=session)
    known = {one["seq"] async for one in letters}
    known |= set(await there.originals.distinct("seq", asked, session=session))
    gone = [seq for seq in seqs if seq not in known]
    return [f"contents {seq} belong to no letter" for seq in gone[:NAMED]]
