"""Campaigns as a whole: made, listed, paused, ended."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.care import read, written
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.escaping import shown, stored
from deadletter.core.letter import By
from deadletter.core.paging import left_off_nowhere
from deadletter.core.replaying import UNFINISHED, check_change, runs_as
from deadletter.ports.letters import ReplayItems

from .letters_moves import given
from .schema import Collections, Document
from .times import number, time
from .turn import Turn


class Course:
    """A campaign under way; what happens to its items is counted here."""

    def __init__(self, found: Document) -> None:
        self.seq: int = found["seq"]
        self.id = shown(found["_id"])
        self.actor = shown(found["actor"])
        self.cap: int = found["cap"]
        self.items: int = found["items"]
        self.state = CampaignState(found["state"])
        self.runs_as = shown(found.get("runs_as", ""))
        self.counts = _counts(found)

    def count(self, old: Outcome | None, new: Outcome, n: int = 1) -> None:
        """So many items are something else now."""
        if old is not None:
            self.counts[old] = self.counts.get(old, 0) - n
        self.counts[new] = self.counts.get(new, 0) + n

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
            "counts": {outcome.value: n for outcome, n in self.counts.items()},
        }
        await turn.there.campaigns.update_one(
            {"seq": self.seq}, {"$set": changes}, session=turn.session
        )


async def existing(turn: Turn, campaign: str) -> Course:
    """Where a campaign stands, which must be there."""
    asked = {"_id": stored(campaign)}
    found = await turn.there.campaigns.find_one(asked, session=turn.session)
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    return Course(found)


async def courses(turn: Turn, seqs: Iterable[int]) -> dict[int, Course]:
    """Where campaigns stand, by number."""
    asked = {"seq": {"$in": sorted(set(seqs))}}
    found = turn.there.campaigns.find(asked, session=turn.session)
    return {one["seq"]: Course(one) async for one in found}


async def plan(
    turn: Turn, campaign: Campaign, letters: Sequence[str], now: datetime
) -> None:
    """Start a campaign over these letters, or add them to it."""
    await _start(turn, campaign)
    course = await existing(turn, campaign.id)
    if course.state is CampaignState.CANCELLED:
        raise Conflict(f"campaign {campaign.id} is cancelled: start another one")
    if course.state is CampaignState.DONE:  # faster than we could plan
        course.state = CampaignState.RUNNING
    added = await _add(turn, course, letters)
    await course.write(turn)
    by = By(campaign.actor, campaign.reason)
    detail = f"{added} letters: {campaign.query}"
    turn.act("replay", campaign.id, by, at=now, detail=detail)


async def change(
    turn: Turn, campaign: str, state: CampaignState, by: By, now: datetime
) -> None:
    """Pause, resume, cancel or end a campaign."""
    course = await existing(turn, campaign)
    old = course.state
    check_change(campaign, old, state)
    if state is old:
        return
    course.state, course.runs_as = state, runs_as(course.runs_as, state, by)
    await course.write(turn)
    turn.act("campaign", campaign, by, at=now, detail=f"{old} to {state}")


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
    there: Collections,
    session: AsyncClientSession,
    campaign: str,
    *,
    after: int,
    limit: int,
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
        tuple(
            _told(ids[item["letter"]], course, item)
            for item in found
            if item["letter"] in ids
        ),
        end if end < course["items"] else None,
    )


async def _start(turn: Turn, campaign: Campaign) -> None:
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
        "items": 0,
        "counts": {},
    }
    await there.campaigns.insert_one(document, session=session)


async def _add(turn: Turn, course: Course, letters: Sequence[str]) -> int:
    there, session = turn.there, turn.session
    found = await given(turn, letters)
    seqs = [brief.seq for brief in found]
    asked = {"campaign": course.seq, "letter": {"$in": seqs}}
    items = there.items.find(asked, {"letter": 1}, session=session)
    known = {item["letter"] async for item in items}
    new = [brief for brief in found if brief.seq not in known]
    if new:
        await there.items.insert_many(
            [
                {
                    "campaign": course.seq,
                    "ordinal": ordinal,
                    "letter": brief.seq,
                    "letter_id": brief.id,
                    "generation": 0,
                    "outcome": Outcome.PLANNED.value,
                }
                for ordinal, brief in enumerate(new, course.items)
            ],
            session=session,
        )
        course.items += len(new)
        course.count(None, Outcome.PLANNED, len(new))
    return len(new)


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
    )
