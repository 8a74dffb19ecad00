"""Campaigns as a whole: made, listed, paused, ended."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem, read, written
from deadletter.core.errors import NotFound
from deadletter.core.letter import State
from deadletter.core.packing import sent_of
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.core.replay_rules import OUT, UNFINISHED, sortable_position
from deadletter.core.seals import MASK, item_changes
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Brief, Course
from deadletter.ports.letters import KeyProgress, ReplayItems

from .database import Turn
from .letters_documents import number, time
from .schema import Collections, Document

_AT_ONCE: Final = 5_000  # ids in one statement
_ORDER: Final = dict.fromkeys(("seq", "sent", "sent_place", "message_id", "rest"), 1)


class CampaignTally:
    """A campaign under way; what happens to its items is counted here."""

    def __init__(self, found: Document) -> None:
        self.seq: int = found["seq"]
        self.id = shown(found["_id"])
        self.actor = shown(found["actor"])
        self.cap: int = found["cap"]
        self.items: int = found["items"]
        self.state = CampaignState(found["state"])
        self.runs_as = shown(found.get("runs_as", ""))
        self.keyed = bool(found.get("keyed"))  # letters wait for others of their key
        self.counts = _counts(found)
        self.marks_key: bytes | None = found.get("marks_key")  # None: no sum yet
        self.marks: dict[str, int] = found.get("marks", {})  # by outcome

    @property
    def position(self) -> Course:
        """The position of the campaign, as transactions see it."""
        return Course(
            self.seq,
            self.id,
            self.state,
            self.cap,
            self.actor,
            self.runs_as,
            self.items,
            self.keyed,
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


async def existing(turn: Turn, campaign: str) -> CampaignTally:
    """Where a campaign stands, which must be there."""
    asked = {"_id": stored(campaign)}
    found = await turn.there.campaigns.find_one(asked, session=turn.session)
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    return CampaignTally(found)


async def tallies(turn: Turn, seqs: Iterable[int]) -> list[CampaignTally]:
    """Return the counts of campaigns."""
    asked = {"seq": {"$in": sorted(set(seqs))}}
    found = turn.there.campaigns.find(asked, session=turn.session)
    return [CampaignTally(one) async for one in found]


async def latest(
    there: Collections,
    session: AsyncClientSession,
    *,
    limit: int,
    begins: str,
    only: CampaignState | None,
    owner: str | None,
    after: str | None,
) -> list[Campaign]:
    """Campaigns with their counts, latest first."""
    if limit < 1:
        return []
    asked: Document = {}
    if begins:
        first = stored(begins)
        asked["_id"] = {"$gte": first, "$lt": f"{first}\U0010ffff"}
    if only is not None:
        asked["state"] = only.value
    own = {} if owner is None else {"owner": stored(owner)}
    if after is not None:
        known = await there.campaigns.find_one(
            {"_id": stored(after), **own}, {"seq": 1}, session=session
        )
        if known is None:
            raise left_off_nowhere(after)
        asked["seq"] = {"$lt": known["seq"]}
    asked |= own
    found = there.campaigns.find(asked, session=session).sort("seq", -1).limit(limit)
    return [_campaign(one) async for one in found]


async def replays(
    there: Collections, session: AsyncClientSession, letters: Sequence[str]
) -> list[ReplayItem]:
    """Every part these letters had in campaigns, each letter's first to last."""
    asked = {"_id": {"$in": [stored(id_) for id_ in letters]}}
    cursor = there.letters.find(asked, {"seq": 1}, session=session)
    seqs = {one["_id"]: one["seq"] async for one in cursor}
    of_letters = {"letter": {"$in": list(seqs.values())}}
    items = await there.items.find(of_letters, session=session).to_list()
    wanted = {"seq": {"$in": list({item["campaign"] for item in items})}}
    campaigns = there.campaigns.find(wanted, session=session)
    by_seq = {one["seq"]: one async for one in campaigns}
    parts: dict[int, list[Document]] = {}
    for item in sorted(items, key=lambda item: item["campaign"]):
        parts.setdefault(item["letter"], []).append(item)
    return [
        _told(id_, by_seq[item["campaign"]], item)
        for id_ in dict.fromkeys(letters)
        if id_ in seqs
        for item in parts.get(seqs[id_], ())
    ]


async def items(
    there: Collections, session: AsyncClientSession, campaign: str, *, after: int, limit: int
) -> ReplayItems:
    """What became of a campaign's letters, in the order they go."""
    course = await there.campaigns.find_one({"_id": stored(campaign)}, session=session)
    if course is None:
        raise NotFound(f"there is no campaign {campaign}")
    end = after + limit
    asked = {"campaign": course["seq"], "ordinal": {"$gte": after, "$lt": end}}
    found = await there.items.find(asked, session=session).sort("ordinal").to_list()
    wanted = {"seq": {"$in": [item["letter"] for item in found]}}
    letters = there.letters.find(wanted, {"seq": 1}, session=session)
    ids = {one["seq"]: shown(one["_id"]) async for one in letters}
    return ReplayItems(
        tuple(_told(ids[item["letter"]], course, item) for item in found if item["letter"] in ids),
        end if end < course["items"] else None,
    )


async def sent_order(
    there: Collections, session: AsyncClientSession, letters: Sequence[str]
) -> list[str]:
    """The ids of letters that exist, oldest sent first."""
    ids = list(dict.fromkeys(letters))
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(ids), _AT_ONCE):
        wanted = [stored(id_) for id_ in ids[start : start + _AT_ONCE]]
        asked = {"_id": {"$in": wanted}}
        cursor = there.letters.find(asked, _ORDER, session=session)
        found += [(*_sent(one), one["_id"]) async for one in cursor]
    return [shown(one[-1]) for one in sorted(found)]


def _sent(letter: Document) -> tuple[Any, ...]:
    """What letters are sorted by; of those kept by an earlier version, as packed."""
    if "sent" in letter:
        sent, place = letter["sent"], letter["sent_place"]
    else:
        sent_at, position = sent_of(letter["rest"])
        sent, place = number(sent_at), sortable_position(position) or ""
    return sent, place, letter["message_id"], letter["seq"]


async def start(turn: Turn, campaign: Campaign) -> None:
    """Write a campaign without letters, unless it exists."""
    there, session = turn.there, turn.session
    id_ = stored(campaign.id)
    if await there.campaigns.find_one({"_id": id_}, {"seq": 1}, session=session):
        return
    document = {
        "_id": id_,
        "seq": turn.next_seq(),
        "query": stored(campaign.query),
        "created": number(campaign.created_at),
        "created_at": campaign.created_at,  # for people
        "actor": stored(campaign.actor),
        "reason": stored(campaign.reason),
        "owner": stored(campaign.owner),
        "runs_as": stored(campaign.runs_as),
        "state": campaign.state.value,
        "to": stored(campaign.to),
        "rate": campaign.rate,
        "cap": campaign.cap,
        "care": written(campaign.care),
        "through": stored(campaign.through),
        "items": 0,
        "counts": {},
        "marks": {},
        "marks_key": turn.sealing.key_id,
    }
    await there.campaigns.insert_one(document, session=session)


async def add(
    turn: Turn, course: CampaignTally, campaign: Campaign, letters: Sequence[Brief]
) -> int:
    """Add letters to a campaign in this order; return the number of new ones."""
    there, session = turn.there, turn.session
    seqs = [brief.seq for brief in letters]
    asked = {"campaign": course.seq, "letter": {"$in": seqs}}
    items = there.items.find(asked, {"letter": 1}, session=session)
    known = {item["letter"] async for item in items}
    new = [brief for brief in letters if brief.seq not in known]
    if new:
        chains = await _chains(turn, campaign, new)
        await there.items.insert_many(
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
                for ordinal, brief in enumerate(new, course.items)
            ],
            session=session,
        )
        course.items += len(new)
        course.keyed = course.keyed or bool(chains)
        free = [brief.seq for brief in new if brief.seq not in chains]
        course.count(turn, None, Outcome.PLANNED, free)
        course.count(turn, None, Outcome.WAITING, chains)
    return len(new)


async def _chains(turn: Turn, campaign: Campaign, letters: Sequence[Brief]) -> dict[int, Document]:
    """What is said of letters, in the order they go, that follow one of their key."""
    if not campaign.care.key_order:
        return {}
    keys: dict[int, Any] = {}
    for start in range(0, len(letters), _AT_ONCE):
        wanted = [brief.seq for brief in letters[start : start + _AT_ONCE]]
        asked = {"seq": {"$in": wanted}, "key": {"$exists": True}}
        found = turn.there.letters.find(asked, {"seq": 1, "key": 1}, session=turn.session)
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


async def waiting_since(there: Collections, session: AsyncClientSession) -> dict[str, datetime]:
    """When the copy was taken that each source has waited for longest."""
    out: list[Document] = [
        {"$match": {"outcome": {"$in": sorted(OUT)}}},
        {
            "$lookup": {
                "from": there.letters.name,
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
    found = await there.items.aggregate(out, session=session)
    return {shown(one["_id"]): time(one["taken"]) async for one in found}


def _counts(found: Document) -> dict[Outcome, int]:
    return {Outcome(outcome): n for outcome, n in found["counts"].items() if n}


def _campaign(found: Document) -> Campaign:
    return Campaign(
        id=shown(found["_id"]),
        query=shown(found["query"]),
        created_at=time(found["created"]),
        actor=shown(found["actor"]),
        reason=shown(found["reason"]),
        owner=shown(found.get("owner", "")),
        runs_as=shown(found.get("runs_as", "")),
        state=CampaignState(found["state"]),
        to=shown(found["to"]),
        rate=found["rate"],
        cap=found["cap"],
        care=read(found.get("care")),
        through=shown(found.get("through", "")),
        counts=_counts(found),
    )


def _told(letter: str, campaign: Document, item: Document) -> ReplayItem:
    return ReplayItem(
        letter_id=letter,
        campaign=shown(campaign["_id"]),
        actor=shown(campaign["actor"]),
        reason=shown(campaign["reason"]),
        to=shown(campaign["to"]),
        generation=item["generation"],
        outcome=Outcome(item["outcome"]),
        taken_at=time(item.get("taken")),
        sent_at=time(item.get("sent")),
        settled_at=time(item.get("settled")),
        confirmed_at=time(item.get("confirmed")),
        why=shown(item.get("why", "")),
    )


# Letters of one key in a campaign: each waits for the one before it to end.


async def freed(turn: Turn, course: CampaignTally, limit: int) -> list[Document]:
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


async def free_behind(turn: Turn, course: CampaignTally, letters: Sequence[int]) -> None:
    """Say that what waits behind these letters may go."""
    if course.keyed and letters:
        await turn.there.items.update_many(
            {"follows": {"$in": list(letters)}, **_waiting(course)},
            {"$set": {"ready": True}},
            session=turn.session,
        )


async def hold_behind(
    turn: Turn, course: CampaignTally, letters: Iterable[int], now: datetime
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
    course = CampaignTally(found)
    grouped = [{"$match": _waiting(course)}, {"$group": {"_id": "$head", "n": {"$sum": 1}}}]
    cursor = await there.items.aggregate(grouped, session=session)
    behind = {one["_id"]: one["n"] async for one in cursor}
    planned = {"outcome": Outcome.PLANNED.value, "campaign": course.seq}
    unsent = there.items.find(
        {"letter": {"$in": list(behind)}, **planned}, {"letter": 1}, session=session
    )
    not_started = sum([behind[one["letter"]] async for one in unsent])
    coming = there.items.find(planned, {"letter": 1}, session=session)
    sizes = [
        1 + behind.get(one["letter"], 0) async for one in coming.sort("ordinal", 1).limit(limit)
    ]
    return KeyProgress(sum(behind.values()) - not_started, tuple(sizes[:limit]))


def _waiting(course: CampaignTally) -> Document:
    return {"campaign": course.seq, "outcome": Outcome.WAITING.value}
