"""Letters of a campaign: claimed bit by bit, sent, settled; what campaigns did with a letter."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome, ReplayItem, item_of
from deadletter.core.letter import State
from deadletter.core.message import Message
from deadletter.core.packing import unpack_message
from deadletter.core.replay_rules import OUT, SETTLED_FROM, Candidate, Going, Interrupted
from deadletter.core.seals import ItemMoves
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Brief, CampaignPosition, ReplayedCopy, Shifts
from deadletter.ports.letters import KeyProgress, ReplayItems, ReplayNext

from .campaigns import CampaignOperations, CampaignTally
from .conventions import state_fields
from .database import Turn
from .letters_documents import bodies, check_body, number, time
from .schema import Document

_NAMED: Final = dict.fromkeys(("source", "business_key", "message_id", "replays"), 1)
_SENT_OUT: Final = dict.fromkeys(("seq", "digest", "rest", "body"), 1)
# When it had been confirmed, of an item that was.
_LATE: Final = {
    "confirmed": {"$cond": [{"$eq": ["$outcome", Outcome.CONFIRMED.value]}, "$settled", "$$REMOVE"]}
}


class ReplayOperations(CampaignOperations):
    """Operations on the letters of campaigns."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        self._items: dict[int, Document] = {}  # that were found, by ordinal

    async def find_sending(
        self, course: CampaignPosition, behind: int, limit: int
    ) -> list[Interrupted]:
        """Return items that are `sending`, by ordinal, from the one behind `behind` on."""
        items = await self._find(course, Outcome.SENDING, behind + 1, limit)
        letters = await self._letters(items)
        found = []
        for item in items:
            brief = letters.get(item["letter"])
            state, replays = (brief.state, brief.replays) if brief else (None, 0)
            found.append(
                Interrupted(item["ordinal"], item["letter"], item["generation"], state, replays)
            )
        return found

    async def find_plan(self, course: CampaignPosition, place: int, limit: int) -> Sequence[int]:
        """Return the ordinals of the next planned items, from `place` on."""
        items = await self._find(course, Outcome.PLANNED, place, limit)
        return [item["ordinal"] for item in items]

    async def free_items(self, course: CampaignPosition, limit: int) -> Sequence[int]:
        """Plan letters whose turn by key has come, counted; return their ordinals."""
        asked = {"ready": True, "campaign": course.seq}
        found = self._there.items.find(asked, session=self._session)
        items = await found.sort("ordinal", 1).limit(limit).to_list()
        if items:
            await self._there.items.update_many(
                {"_id": {"$in": [item["_id"] for item in items]}},
                {"$set": {"outcome": Outcome.PLANNED.value}, "$unset": {"ready": ""}},
                session=self._session,
            )
            letters = [item["letter"] for item in items]
            await self.count_items({(course.seq, Outcome.WAITING, Outcome.PLANNED): letters})
        self._items |= {item["ordinal"]: item for item in items}
        return [item["ordinal"] for item in items]

    async def find_candidates(
        self, course: CampaignPosition, ordinals: Sequence[int], *, bodies: bool
    ) -> list[Candidate]:
        """Return the letters of items, in order; purged ones are missing."""
        items = [self._items[ordinal] for ordinal in ordinals]
        letters = await self._letters(items)
        found = [(item["ordinal"], letters.get(item["letter"])) for item in items]
        return [
            Candidate(b.seq, b.id, b.source, b.fingerprint, b.state, b.replays, ordinal)
            for ordinal, b in found
            if b is not None
        ]

    async def find_messages(
        self, course: CampaignPosition, letters: Sequence[Candidate]
    ) -> list[Message]:
        """Return the messages of letters."""
        asked = {"_id": {"$in": [stored(one.id) for one in letters]}}
        found = await self._there.letters.find(asked, _SENT_OUT, session=self._session).to_list()
        by_seq = await bodies(self._there, self._session, found)
        rests = {}
        for one in found:
            check_body(one, by_seq[one["seq"]])
            rests[one["seq"]] = one["rest"]
        return [unpack_message(rests[one.seq], by_seq[one.seq]) for one in letters]

    async def take_items(
        self, course: CampaignPosition, going: Going, outcome: Outcome, now: datetime
    ) -> None:
        """Write that letters are out, with their next generation."""
        by_generation: defaultdict[int, list[Candidate]] = defaultdict(list)
        for one in going.letters:
            by_generation[one.replays + 1].append(one)
        for generation, some in by_generation.items():
            out = {
                **state_fields(self._turn.numbers, State.REPLAYING),
                "state": State.REPLAYING.value,
                "replays": generation,
            }
            await self._there.letters.update_many(
                {"_id": {"$in": [one.id for one in some]}},
                {"$set": out, "$inc": {"revision": 1}},
                session=self._session,
            )
            taken = {"outcome": outcome.value, "taken": number(now), "generation": generation}
            await self._there.items.update_many(
                {"_id": {"$in": [self._items[one.ordinal]["_id"] for one in some]}},
                {"$set": taken},
                session=self._session,
            )

    async def count_taken(self, shifts: Shifts, moves: ItemMoves) -> None:
        """Change the number of letters by state, and of items by outcome."""
        await self.shift_counts(shifts)
        await self.count_items(moves)

    async def shift_counts(self, shifts: Shifts) -> None:
        """Change the number of letters by source, group and state."""
        for (source, fingerprint, state), n in shifts.items():
            self._turn.shift(source, fingerprint, {state: n})

    async def skip_items(
        self, course: CampaignPosition, ordinals: Sequence[int], before: Outcome, now: datetime
    ) -> list[int]:
        """Write that items are skipped; return the numbers of their letters."""
        await self.settle_items(course.seq, ordinals, Outcome.SKIPPED, now)
        return [self._items[ordinal]["letter"] for ordinal in ordinals]

    async def advance(self, course: CampaignPosition, taken: int, sending: Sequence[int]) -> None:
        """End a campaign if nothing is left to wait for; outcomes say how far it has come."""
        await self.finish_campaigns([course.seq])

    async def mark_sent(
        self, campaign: str, ids: Sequence[str], now: datetime
    ) -> tuple[int, list[int]] | None:
        """Write that the broker has copies; return the numbers of campaign and letters."""
        course = await self.find_campaign(campaign)
        if course is None:
            return None
        seqs = [brief.seq for brief in await self.find_briefs(ids)]
        going = {"campaign": course.seq, "letter": {"$in": seqs}, "outcome": Outcome.SENDING.value}
        items = self._there.items.find(going, {"letter": 1}, session=self._session)
        letters = [item["letter"] async for item in items]
        sent = {"outcome": Outcome.SENT.value, "sent": number(now)}
        await self._there.items.update_many(going, {"$set": sent}, session=self._session)
        return course.seq, letters

    async def find_copies(self, copies: Collection[tuple[str, int]]) -> list[ReplayedCopy]:
        """Return the copies of these letters that news can change."""
        letters = {one.seq: one for one in await self.find_briefs([id_ for id_, _ in copies])}
        most = sorted(SETTLED_FROM[Outcome.FAILED])
        asked = {"letter": {"$in": list(letters)}, "outcome": {"$in": most}}
        items = await self._there.items.find(asked, session=self._session).to_list()
        wanted = {"seq": {"$in": sorted({item["campaign"] for item in items})}}
        async for one in self._there.campaigns.find(wanted, session=self._session):
            self._hold(CampaignTally(one))
        return [
            ReplayedCopy(
                letters[item["letter"]],
                item["generation"],
                item["campaign"],
                item["ordinal"],
                Outcome(item["outcome"]),
                self._tallies[item["campaign"]].cap,
                self._tallies[item["campaign"]].keyed,
            )
            for item in items
        ]

    async def settle_items(
        self, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
    ) -> None:
        """Write the outcome of items."""
        await self._there.items.update_many(
            {"campaign": campaign, "ordinal": {"$in": ordinals}},
            [{"$set": {**_LATE, "outcome": outcome.value, "settled": number(now)}}],
            session=self._session,
        )

    async def explain_items(self, reasons: Sequence[tuple[str, int, int]]) -> None:
        """Write why items were refused: text, campaign and ordinal of each."""
        for reason, campaign, ordinal in reasons:
            which = {"campaign": campaign, "ordinal": ordinal}
            change = {"$set": {"why": stored(reason)}}
            await self._there.items.update_one(which, change, session=self._session)

    async def free_waiting(self, campaign: int, letters: Sequence[int]) -> None:
        """Let letters go that wait for these letters by their key."""
        if letters and self._tallies[campaign].keyed:
            await self._there.items.update_many(
                {"follows": {"$in": list(letters)}, **_waiting(campaign)},
                {"$set": {"ready": True}},
                session=self._session,
            )

    async def hold_waiting(self, campaign: int, letters: Sequence[int], now: datetime) -> None:
        """Hold all letters back that wait behind these letters by their key."""
        if not letters or not self._tallies[campaign].keyed:
            return
        items = self._there.items
        asked = {"follows": {"$in": list(letters)}, **_waiting(campaign)}
        heads = await items.distinct("head", asked, session=self._session)
        if not heads:
            return
        behind = {"head": {"$in": heads}, **_waiting(campaign)}
        found = items.find(behind, {"letter": 1}, session=self._session)
        held = [item["letter"] async for item in found]
        change = {
            "$set": {"outcome": Outcome.HELD.value, "settled": number(now)},
            "$unset": {"ready": ""},
        }
        await items.update_many(behind, change, session=self._session)
        await self.count_items({(campaign, Outcome.WAITING, Outcome.HELD): held})

    async def find_next(self, course: CampaignPosition, limit: int) -> list[ReplayNext]:
        """Return the next letters of a campaign, those whose turn by key has come first."""
        ids: list[str] = []
        for which in ({"ready": True}, {"outcome": Outcome.PLANNED.value}):
            if len(ids) < limit:
                asked = {**which, "campaign": course.seq}
                found = self._there.items.find(asked, {"letter_id": 1}, session=self._session)
                some = found.sort("ordinal", 1).limit(limit - len(ids))
                ids += [one["letter_id"] async for one in some]
        heads = self._there.letters.find({"_id": {"$in": ids}}, _NAMED, session=self._session)
        return [
            ReplayNext(
                shown(one["_id"]),
                shown(one["source"]),
                shown(one.get("business_key") or one["message_id"]),
                one["replays"],
            )
            async for one in heads
        ]

    async def find_progress(self, course: CampaignPosition, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        items, session = self._there.items, self._session
        grouped = [{"$match": _waiting(course.seq)}, {"$group": {"_id": "$head", "n": {"$sum": 1}}}]
        cursor = await items.aggregate(grouped, session=session)
        behind = {one["_id"]: one["n"] async for one in cursor}
        planned = {"outcome": Outcome.PLANNED.value, "campaign": course.seq}
        heads = {"letter": {"$in": list(behind)}, **planned}
        unsent = items.find(heads, {"letter": 1}, session=session)
        not_started = sum([behind[one["letter"]] async for one in unsent])
        coming = items.find(planned, {"letter": 1}, session=session).sort("ordinal", 1)
        sizes = [1 + behind.get(one["letter"], 0) async for one in coming.limit(limit)]
        return KeyProgress(sum(behind.values()) - not_started, tuple(sizes[:limit]))

    async def find_items(
        self,
        course: CampaignPosition,
        after: int,
        limit: int,
        outcomes: frozenset[Outcome] | None = None,
    ) -> ReplayItems:
        """Return items of a campaign, in the order they go; with `outcomes`, only of these."""
        if outcomes is not None:
            wanted = {
                "campaign": course.seq,
                "ordinal": {"$gte": after},
                "outcome": {"$in": [outcome.value for outcome in outcomes]},
            }
            cursor = self._there.items.find(wanted, session=self._session)
            some = await cursor.sort("ordinal").limit(limit + 1).to_list()
            more = some[limit]["ordinal"] if len(some) > limit else None
            return ReplayItems(tuple(await self._told(some[:limit])), more)
        end = after + limit
        asked = {"campaign": course.seq, "ordinal": {"$gte": after, "$lt": end}}
        found = self._there.items.find(asked, session=self._session).sort("ordinal")
        items = await self._told(await found.to_list())
        return ReplayItems(tuple(items), end if end < course.items else None)

    async def find_replays(self, ids: Sequence[str]) -> list[ReplayItem]:
        """Return every part that letters had in campaigns, each letter's first to last."""
        seqs = {brief.seq: place for place, brief in enumerate(await self.find_briefs(ids))}
        asked = {"letter": {"$in": list(seqs)}}
        items = await self._there.items.find(asked, session=self._session).to_list()
        return await self._told(
            sorted(items, key=lambda item: (seqs[item["letter"]], item["campaign"]))
        )

    async def _told(self, items: Sequence[Document]) -> list[ReplayItem]:
        """Return items with their letters and campaigns; those of purged letters are left out."""
        letters = await self._letters(items)
        wanted = {"seq": {"$in": list({item["campaign"] for item in items})}}
        cursor = self._there.campaigns.find(wanted, session=self._session)
        campaigns = {one["seq"]: one async for one in cursor}
        return [
            _told(letters[item["letter"]], campaigns[item["campaign"]], item)
            for item in items
            if item["letter"] in letters
        ]

    async def waiting_since(self) -> dict[str, datetime]:
        """Return when the copy was taken that each source has waited for longest."""
        out: list[Document] = [
            {"$match": {"outcome": {"$in": sorted(OUT)}}},
            {
                "$lookup": {
                    "from": self._there.letters.name,
                    "localField": "letter_id",
                    "foreignField": "_id",
                    "pipeline": [{"$project": {"state": 1, "replays": 1, "source": 1}}],
                    "as": "found",
                }
            },
            {"$unwind": "$found"},
            {
                "$match": {
                    "found.state": State.REPLAYING.value,
                    "$expr": {"$eq": ["$found.replays", "$generation"]},
                }
            },
            {"$group": {"_id": "$found.source", "taken": {"$min": "$taken"}}},
        ]
        found = await self._there.items.aggregate(out, session=self._session)
        return {shown(one["_id"]): time(one["taken"]) async for one in found}

    async def _find(
        self, course: CampaignPosition, outcome: Outcome, first: int, limit: int
    ) -> list[Document]:
        asked = {"outcome": outcome.value, "campaign": course.seq, "ordinal": {"$gte": first}}
        found = self._there.items.find(asked, session=self._session)
        items = await found.sort("ordinal", 1).limit(limit).to_list()
        self._items |= {item["ordinal"]: item for item in items}
        return items

    async def _letters(self, items: Sequence[Document]) -> dict[int, Brief]:
        """Return the letters of items that are still there, by number."""
        found = await self.find_briefs([item["letter_id"] for item in items])
        return {brief.seq: brief for brief in found}


def _waiting(campaign: int) -> Document:
    return {"campaign": campaign, "outcome": Outcome.WAITING.value}


def _told(letter: Brief, campaign: Document, item: Document) -> ReplayItem:
    by = [shown(campaign[name]) for name in ("_id", "actor", "reason", "to")]
    times = [time(item.get(name)) for name in ("taken", "sent", "settled", "confirmed")]
    why = shown(item.get("why", ""))
    return item_of([letter.id, *by, item["generation"], item["outcome"], *times, why])
