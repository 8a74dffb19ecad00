"""Reads of a whole MongoDB office that verification compares, and the seals it renews."""

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from deadletter.core.audit import ItemSum, Sums
from deadletter.core.letter import AuditEntry
from deadletter.core.seals import NAMED, Ends, Start
from deadletter.core.text import shown
from deadletter.office.transactions.operations import Counts, OfficeNumbers, SealedLetters

from . import audit
from .database import Turn
from .letters_documents import WHOLE, bodies, sealed
from .schema import OFFICE, Document

_SLICE: Final = 200  # bodies at a time
_BY_STATE: Final[list[Document]] = [
    {
        "$group": {
            "_id": {"source": "$source", "group": "$fingerprint", "state": "$state"},
            "n": {"$sum": 1},
        }
    }
]
_ITEM: Final = dict.fromkeys(("campaign", "letter", "outcome"), 1)


class MongodbReads:
    """Reads of a whole office, in one turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._there = turn.there
        self._session = turn.session
        self.sealing = turn.sealing

    async def read_office(self) -> OfficeNumbers:
        """Return the counters and sums of the office, as of this turn if it changes any."""
        office = self._turn.numbers or await self._there.office.find_one(
            {"_id": OFFICE}, session=self._session
        )
        assert office is not None
        return _numbers_of(office)

    async def read_counts(self) -> Counts:
        """Count all letters by source, group and state; return that and the stored counts."""
        letters = [
            (shown(one["_id"]["source"]), shown(one["_id"]["group"]), one["_id"]["state"], one["n"])
            async for one in await self._there.letters.aggregate(_BY_STATE, session=self._session)
        ]
        by_group: dict[tuple[str, str], int] = {}
        async for one in self._there.groups.find({}, session=self._session):
            name = shown(one["_id"])
            by_group |= {(name, state): n for state, n in one.get("states", {}).items()}
            by_group[name, "open"] = one.get("open", 0)
        by_source = {
            (shown(one["_id"]), state): n
            async for one in self._there.sources.find({}, session=self._session)
            for state, n in one.get("states", {}).items()
        }
        return Counts(letters, by_source, by_group)

    async def find_oddities(self) -> list[str]:
        """Return sentences on parts of bodies that belong to no letter."""
        seqs = await self._there.parts.distinct("letter", session=self._session)
        asked = {"seq": {"$in": seqs}}
        letters = self._there.letters.find(asked, {"seq": 1}, session=self._session)
        known = {one["seq"] async for one in letters}
        known |= set(await self._there.originals.distinct("seq", asked, session=self._session))
        gone = [seq for seq in seqs if seq not in known]
        return [f"contents {seq} belong to no letter" for seq in gone[:NAMED]]

    async def read_ids(self) -> AsyncIterator[str]:
        """Return the ids of all letters."""
        async for one in self._there.letters.find({}, {"_id": 1}, session=self._session):
            yield shown(one["_id"])

    async def read_totals(self) -> dict[str, int]:
        """Return the deaths that each group counts."""
        groups = self._there.groups.find({}, {"total": 1}, session=self._session)
        return {shown(one["_id"]): one["total"] async for one in groups if one.get("total")}

    async def read_campaigns(self) -> list[tuple[int, str, Start]]:
        """Return the number, id and start of all campaigns."""
        return [
            (
                one["seq"],
                shown(one["_id"]),
                Start(shown(one["actor"]), shown(one["reason"]), shown(one["query"])),
            )
            async for one in self._there.campaigns.find({}, session=self._session)
        ]

    async def read_item_sums(self) -> list[ItemSum]:
        """Return the sums of all campaigns, by outcome."""
        found: list[ItemSum] = []
        async for one in self._there.campaigns.find({}, session=self._session):
            marks, counts = one.get("marks", {}), one["counts"]
            found += [
                ItemSum(
                    one["seq"],
                    outcome,
                    marks.get(outcome, 0),
                    one.get("marks_key"),
                    counts.get(outcome, 0),
                )
                for outcome in marks.keys() | counts.keys()
            ]
        return found

    async def read_items(self) -> AsyncIterator[tuple[int, int, str]]:
        """Return all letters of campaigns: the numbers of both, and the outcome."""
        async for one in self._there.items.find({}, _ITEM, session=self._session):
            yield one["campaign"], one["letter"], one["outcome"]

    async def read_audit(self, *, target: str | None, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit behind `after`, of one target or all, oldest first."""
        return await audit.page(self._there, self._session, target=target, after=after, limit=limit)

    async def find_sealed(self, after: str) -> SealedLetters:
        """Return some letters behind `after` with their seals, by their ids."""
        cursor = self._there.letters.find({"_id": {"$gt": after}}, WHOLE, session=self._session)
        found = await cursor.sort("_id", 1).limit(_SLICE).to_list()
        last = found[-1]["_id"] if len(found) == _SLICE else None
        died = {"_id": {"$in": [one["_id"] for one in found if "died" in one]}}
        originals = {
            one["_id"]: one async for one in self._there.originals.find(died, session=self._session)
        }
        by_seq = await bodies(self._there, self._session, [*found, *originals.values()])
        generations: defaultdict[int, list[int]] = defaultdict(list)
        taken = {"letter": {"$in": [one["seq"] for one in found]}, "generation": {"$gt": 0}}
        async for item in self._there.items.find(taken, session=self._session):
            generations[item["letter"]].append(item["generation"])
        letters = [
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
        ]
        return SealedLetters(letters, after=last)


def _numbers_of(office: Document) -> OfficeNumbers:
    """Return the counters and sums in the document of the office."""
    return OfficeNumbers(
        office["kept"],
        Sums(
            office.get("deaths", 0),
            office.get("death_marks", 0),
            office.get("letter_marks", 0),
            office.get("marks_key"),
        ),
        Ends(office["audit_seq"], office["audit_hash"], office["purged"], office["expired"]),
    )
