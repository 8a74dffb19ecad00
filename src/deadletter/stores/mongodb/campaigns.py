"""Campaigns as a whole: made, listed, paused, ended, and letters added to them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Outcome,
    campaign_of,
    campaign_row,
    written,
    written_plan,
)
from deadletter.core.letter import State
from deadletter.core.packing import sent_of
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.core.replay_rules import UNFINISHED, sortable_position
from deadletter.core.seals import MASK, ItemMoves, item_changes
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Brief, CampaignFilter, CampaignPosition

from .database import Turn
from .letters_documents import number, time
from .schema import Document
from .verification import MongodbReads

_AT_ONCE: Final = 5_000  # ids in one statement
BRIEF: Final = dict.fromkeys(("seq", "source", "fingerprint", "state", "replays"), 1)
_ORDER: Final = dict.fromkeys(("seq", "sent", "sent_place", "message_id", "rest"), 1)
# The fields of a campaign in its document, in the order of `campaign_row`.
_FIELDS: Final = (
    *("_id", "query", "created", "actor", "reason", "owner", "runs_as", "state", "to", "rate"),
    *("cap", "care", "through", "plan", "approved_by"),
)
# Those that the first campaigns do not have.
_LATER: Final = {
    "owner": "",
    "runs_as": "",
    "care": None,
    "through": "",
    "plan": None,
    "approved_by": "",
}


class CampaignTally:
    """A campaign under way; what happens to its items is counted here."""

    def __init__(self, found: Document) -> None:
        self.seq: int = found["seq"]
        self.id = shown(found["_id"])
        self.actor = shown(found["actor"])
        self.cap: int = found["cap"]
        self.to: str | None = shown(found["to"])
        self.items: int = found["items"]
        self.state = CampaignState(found["state"])
        self.runs_as = shown(found.get("runs_as", ""))
        self.keyed = bool(found.get("keyed"))  # letters wait for others of their key
        self.counts = _counts(found)
        self.marks_key: bytes | None = found.get("marks_key")  # None: no sum yet
        self.marks: dict[str, int] = found.get("marks", {})  # by outcome

    @property
    def position(self) -> CampaignPosition:
        """The position of the campaign, as transactions see it."""
        return CampaignPosition(
            self.seq,
            self.id,
            self.state,
            self.cap,
            self.actor,
            self.runs_as,
            self.items,
            self.keyed,
            taken=0,
            free=self.items,
            to=self.to,
        )

    def count(
        self, turn: Turn, old: Outcome | None, new: Outcome, letters: Collection[int]
    ) -> None:
        """Note that items, by the numbers of their letters, are something else now."""
        marks = turn.sealing.marks(self.marks_key)
        moves = {(self.seq, old, new): letters}
        for _, outcome, n, more, _ in item_changes(moves, lambda *_: marks):
            self.counts[outcome] = self.counts.get(outcome, 0) + n
            total = self.marks.get(outcome.value, 0) + more
            self.marks[outcome.value] = total & MASK

    def finish(self) -> None:
        """End it if it runs and there is nothing left to wait for."""
        left = any(self.counts.get(outcome) for outcome in UNFINISHED)
        if self.state is CampaignState.RUNNING and not left:
            self.state = CampaignState.DONE

    async def write(self, turn: Turn) -> None:
        """Write down where it stands."""
        changes = {
            "state": self.state.value,
            "runs_as": stored(self.runs_as),
            "items": self.items,
            "keyed": self.keyed,
            "counts": {outcome.value: n for outcome, n in self.counts.items()},
            **({} if self.marks_key is None else {"marks": self.marks}),
        }
        await turn.there.campaigns.update_one(
            {"seq": self.seq}, {"$set": changes}, session=turn.session
        )


class CampaignOperations(MongodbReads):
    """Operations on campaigns; what is counted is written when the turn ends."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn)
        self._tallies: dict[int, CampaignTally] = {}

    async def find_briefs(self, ids: Sequence[str]) -> list[Brief]:
        """Return the letters with these ids, each once, in this order."""
        wanted = list(dict.fromkeys(ids))
        found: dict[str, Brief] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = [stored(id_) for id_ in wanted[start : start + _AT_ONCE]]
            asked = {"_id": {"$in": some}}
            cursor = self._there.letters.find(asked, BRIEF, session=self._session)
            found |= {one["_id"]: brief_of(one) async for one in cursor}
        return [found[id_] for id_ in wanted if id_ in found]

    async def find_campaign(self, id: str) -> CampaignPosition | None:
        """Return the position of a campaign."""
        asked = {"_id": stored(id)}
        found = await self._there.campaigns.find_one(asked, session=self._session)
        return None if found is None else self._hold(CampaignTally(found)).position

    async def find_campaigns(self, wanted: CampaignFilter) -> list[Campaign]:
        """Return campaigns with their counts, latest first."""
        if wanted.limit < 1:
            return []
        asked: Document = {}
        if wanted.begins:
            first = stored(wanted.begins)
            asked["_id"] = {"$gte": first, "$lt": f"{first}\U0010ffff"}
        if wanted.only is not None:
            asked["state"] = wanted.only.value
        own = {} if wanted.owner is None else {"owner": stored(wanted.owner)}
        campaigns = self._there.campaigns
        if wanted.after is not None:
            last = {"_id": stored(wanted.after), **own}
            known = await campaigns.find_one(last, {"seq": 1}, session=self._session)
            if known is None:
                raise left_off_nowhere(wanted.after)
            asked["seq"] = {"$lt": known["seq"]}
        found = campaigns.find(asked | own, session=self._session).sort("seq", -1)
        return [_campaign(one) async for one in found.limit(wanted.limit)]

    async def start_campaign(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""
        campaigns, which = self._there.campaigns, {"_id": stored(campaign.id)}
        if await campaigns.find_one(which, {"seq": 1}, session=self._session):
            return
        row = [stored(one) if isinstance(one, str) else one for one in campaign_row(campaign)]
        told = dict(zip(_FIELDS, row, strict=True))
        document = told | {
            "created": number(campaign.created_at),
            "created_at": campaign.created_at,  # for people
            "seq": self._turn.next_seq(),
            "items": 0,
            "counts": {},
            "marks": {},
            "marks_key": self._turn.sealing.key_id,
        }
        await campaigns.insert_one(document, session=self._session)

    async def set_campaign(
        self, course: CampaignPosition, state: CampaignState, runs_as: str
    ) -> None:
        """Write another state of a campaign, and the principal that it runs as."""
        tally = self._tallies[course.seq]
        tally.state, tally.runs_as = state, runs_as

    async def rewrite_campaign(self, course: CampaignPosition, campaign: Campaign) -> None:
        """Write the precautions, the plan and the approval of a campaign."""
        plan = written_plan(campaign.plan)
        changes = {
            "care": written(campaign.care),
            "plan": None if plan is None else stored(plan),
            "approved_by": stored(campaign.approved_by),
        }
        await self._there.campaigns.update_one(
            {"seq": course.seq}, {"$set": changes}, session=self._session
        )

    async def write_slices(self, course: CampaignPosition, slices: Mapping[int, str]) -> None:
        """Write slices of a kept plan by their place, new or again."""
        for place, contents in slices.items():
            await self._there.slices.replace_one(
                {"campaign": course.seq, "place": place},
                {"campaign": course.seq, "place": place, "contents": contents},
                upsert=True,
                session=self._session,
            )

    async def find_slices(self, course: CampaignPosition, first: int, limit: int) -> list[str]:
        """Return slices of a kept plan in order, from the place `first` on."""
        asked = {"campaign": course.seq, "place": {"$gte": first, "$lt": first + limit}}
        found = self._there.slices.find(asked, {"contents": 1}, session=self._session)
        return [one["contents"] async for one in found.sort("place", 1)]

    async def finish_campaigns(self, campaigns: Collection[int]) -> None:
        """End running campaigns that have nothing left to wait for."""
        for seq in campaigns:
            self._tallies[seq].finish()

    async def sent_order(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of letters that exist, oldest sent first."""
        wanted = list(dict.fromkeys(ids))
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(wanted), _AT_ONCE):
            some = [stored(id_) for id_ in wanted[start : start + _AT_ONCE]]
            asked = {"_id": {"$in": some}}
            cursor = self._there.letters.find(asked, _ORDER, session=self._session)
            found += [(*_sent(one), one["_id"]) async for one in cursor]
        return [shown(one[-1]) for one in sorted(found)]

    async def plan_items(
        self, course: CampaignPosition, campaign: Campaign, ids: Sequence[str]
    ) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""
        tally, items = self._tallies[course.seq], self._there.items
        letters = await self.find_briefs(await self.sent_order(ids))
        asked = {"campaign": course.seq, "letter": {"$in": [brief.seq for brief in letters]}}
        found = items.find(asked, {"letter": 1}, session=self._session)
        known = {item["letter"] async for item in found}
        new = [brief for brief in letters if brief.seq not in known]
        if new:
            chains = await self._chains(campaign, new)
            await items.insert_many(
                [
                    {
                        "campaign": course.seq,
                        "ordinal": ordinal,
                        "letter": brief.seq,
                        "letter_id": brief.id,
                        "generation": 0,
                        "outcome": Outcome.PLANNED.value,
                        **chains.get(brief.seq, {}),
                    }
                    for ordinal, brief in enumerate(new, tally.items)
                ],
                session=self._session,
            )
            tally.items += len(new)
            tally.keyed = tally.keyed or bool(chains)
            free = [brief.seq for brief in new if brief.seq not in chains]
            tally.count(self._turn, None, Outcome.PLANNED, free)
            tally.count(self._turn, None, Outcome.WAITING, chains)
        return len(new)

    async def count_items(self, moves: ItemMoves) -> None:
        """Change the number of items by outcome, and their sums."""
        for (campaign, old, new), letters in moves.items():
            self._tallies[campaign].count(self._turn, old, new, letters)

    async def _chains(self, campaign: Campaign, letters: Sequence[Brief]) -> dict[int, Document]:
        """Return what is said of letters, in the order they go, that follow one of their key."""
        if not campaign.care.key_order:
            return {}
        keys: dict[int, Any] = {}
        for start in range(0, len(letters), _AT_ONCE):
            wanted = [brief.seq for brief in letters[start : start + _AT_ONCE]]
            asked = {"seq": {"$in": wanted}, "key": {"$exists": True}}
            found = self._there.letters.find(asked, {"seq": 1, "key": 1}, session=self._session)
            keys |= {one["seq"]: one["key"] async for one in found}
        last: dict[tuple[str, Any], tuple[int, int]] = {}  # and the first
        chains: dict[int, Document] = {}
        for brief in letters:
            if brief.seq not in keys:
                continue
            key = (campaign.to or brief.source, keys[brief.seq])
            head = brief.seq
            if key in last:
                follows, head = last[key]
                waiting = {"outcome": Outcome.WAITING.value}
                chains[brief.seq] = {"follows": follows, "head": head, **waiting}
            last[key] = brief.seq, head
        return chains

    def _hold(self, tally: CampaignTally) -> CampaignTally:
        """Remember the counts of a campaign; they are written when the turn ends."""
        if tally.seq not in self._tallies:
            self._tallies[tally.seq] = tally
            self._turn.at_end(lambda: tally.write(self._turn))
        return self._tallies[tally.seq]


def brief_of(found: Document) -> Brief:
    """Return the letter in a document, read as `BRIEF`."""
    return Brief(
        found["seq"],
        found["_id"],
        shown(found["source"]),
        shown(found["fingerprint"]),
        State(found["state"]),
        found["replays"],
    )


def _sent(letter: Document) -> tuple[Any, ...]:
    """Return the sort key of letters; for those of earlier versions from the packed form."""
    if "sent" in letter:
        sent, place = letter["sent"], letter["sent_place"]
    else:
        sent_at, position = sent_of(letter["rest"])
        sent, place = number(sent_at), sortable_position(position) or ""
    return sent, place, letter["message_id"], letter["seq"]


def _counts(found: Document) -> dict[Outcome, int]:
    return {Outcome(outcome): n for outcome, n in found["counts"].items() if n}


def _campaign(found: Document) -> Campaign:
    told = _LATER | found | {"created": time(found["created"])}
    row = [told[name] for name in _FIELDS]
    legible = [shown(one) if isinstance(one, str) else one for one in row]
    return campaign_of(legible, _counts(found))
