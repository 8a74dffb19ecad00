"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence, Sized
from datetime import datetime
from typing import Final

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.errors import NotFound
from deadletter.core.letter import State
from deadletter.core.packing import unpack_message
from deadletter.core.replay_rules import is_out, still_needed, take
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Brief
from deadletter.office.transactions.outcomes import quarantine
from deadletter.ports.letters import ReplayNext, ReplayTaken

from .campaigns import CampaignTally, existing, free_behind, freed, hold_behind
from .database import Turn
from .letter_operations import MongodbOperations
from .letters_documents import bodies, check_body, number
from .schema import Collections, Document

_NAMED: Final = dict.fromkeys(("source", "business_key", "message_id", "replays"), 1)
_SENT_OUT: Final = dict.fromkeys(("seq", "source", "digest", "rest", "body"), 1)


async def upcoming(
    there: Collections, session: AsyncClientSession, campaign: str, limit: int
) -> list[ReplayNext]:
    """The next planned letters of a running campaign."""
    course = await there.campaigns.find_one({"_id": stored(campaign)}, session=session)
    if course is None:
        raise NotFound(f"there is no campaign {campaign}")
    if course["state"] != CampaignState.RUNNING:
        return []
    ids: list[str] = []
    for which in ({"ready": True}, {"outcome": Outcome.PLANNED.value}):
        if len(ids) < limit:
            asked = {**which, "campaign": course["seq"]}
            found = there.items.find(asked, {"letter_id": 1}, session=session)
            some = found.sort("ordinal", 1).limit(limit - len(ids))
            ids += [one["letter_id"] async for one in some]
    wanted = {"_id": {"$in": ids}}
    heads = there.letters.find(wanted, _NAMED, session=session)
    return [
        ReplayNext(
            shown(one["_id"]),
            shown(one["source"]),
            shown(one.get("business_key") or one["message_id"]),
            one["replays"],
        )
        async for one in heads
    ]


async def take_next(  # noqa: PLR0917 -- as the port has it
    turn: Turn,
    campaign: str,
    limit: int,
    leave_out: frozenset[str] | None,
    keys: int | None,
    now: datetime,
) -> list[ReplayTaken]:
    """Claim the next letters of a running campaign, the interrupted ones first."""
    course = await existing(turn, campaign)
    if course.state is not CampaignState.RUNNING:
        return []
    going: dict[Brief, int] = {}  # with their generations
    await _take_again(turn, course, limit, going, now)
    again = len(going)
    waited = await freed(turn, course, limit - len(going))
    if waited:
        letters = await MongodbOperations(turn).find_briefs([item["letter_id"] for item in waited])
        by_seq = {brief.seq: brief for brief in letters}
        await _take_items(turn, course, waited, by_seq, going, leave_out, now)
    gone = len(going) if leave_out is None else again + len(waited)
    left = limit - gone if keys is None else min(limit - gone, keys)
    await _take_planned(turn, course, len(going) + left, going, leave_out, now)
    course.finish()
    await course.write(turn)
    return await _copies(turn, going)


async def sent(turn: Turn, campaign: str, letters: Sequence[str], now: datetime) -> None:
    """Record that the broker has the copies of these letters."""
    course = await existing(turn, campaign)
    seqs = [brief.seq for brief in await MongodbOperations(turn).find_briefs(letters)]
    going = {"campaign": course.seq, "letter": {"$in": seqs}, "outcome": Outcome.SENDING.value}
    items = turn.there.items.find(going, {"letter": 1}, session=turn.session)
    gone = [item["letter"] async for item in items]
    await turn.there.items.update_many(
        going, {"$set": {"outcome": Outcome.SENT.value, "sent": number(now)}}, session=turn.session
    )
    course.count(turn, Outcome.SENDING, Outcome.SENT, gone)
    await course.write(turn)


async def _take_again(
    turn: Turn, course: CampaignTally, limit: int, going: dict[Brief, int], now: datetime
) -> None:
    """What was taken but never reported as sent, unless somebody took it back."""
    async for items, letters in _next(turn, course, Outcome.SENDING, limit, going):
        gone: list[Document] = []
        for item in items:
            brief, generation = letters.get(item["letter"]), item["generation"]
            if brief and is_out(brief.state, brief.replays, generation):
                going[brief] = generation
            else:
                gone.append(item)
        await _skip(turn, course, gone, Outcome.SENDING, now)
        await _end_keys(turn, course, gone, letters, (), now)


async def _take_planned(  # noqa: PLR0917 -- a step of `take_next`
    turn: Turn,
    course: CampaignTally,
    limit: int,
    going: dict[Brief, int],
    leave_out: frozenset[str] | None,
    now: datetime,
) -> None:
    """The next letters that were only planned, if they may go out."""
    async for items, letters in _next(turn, course, Outcome.PLANNED, limit, going):
        await _take_items(turn, course, items, letters, going, leave_out, now)
        if leave_out is not None:
            break


async def _take_items(  # noqa: PLR0917 -- a step of `take_next`
    turn: Turn,
    course: CampaignTally,
    items: Sequence[Document],
    letters: Mapping[int, Brief],
    going: dict[Brief, int],
    leave_out: frozenset[str] | None,
    now: datetime,
) -> None:
    """Take items with their letters, and skip those that may not go."""
    taken: defaultdict[int, list[tuple[Document, Brief]]] = defaultdict(list)
    left: list[Document] = []
    past_cap: list[str] = []
    for item in items:
        brief = letters.get(item["letter"])
        if brief is None or brief.id in (leave_out or ()):  # or purged since
            left.append(item)
            continue
        outcome, after = take(brief.state, brief.replays, course.cap)
        if outcome is Outcome.SENDING:
            taken[brief.replays + 1].append((item, brief))
            going[brief] = brief.replays + 1
            continue
        left.append(item)
        if after is not brief.state:
            past_cap.append(brief.id)
    await quarantine(MongodbOperations(turn), course.position, past_cap, now)
    for generation, some in taken.items():
        await _send(turn, course, generation, some, now)
    await _skip(turn, course, left, Outcome.PLANNED, now)
    await _end_keys(turn, course, left, letters, leave_out or (), now)


async def _next(
    turn: Turn, course: CampaignTally, outcome: Outcome, limit: int, going: Sized
) -> AsyncIterator[tuple[list[Document], dict[int, Brief]]]:
    """
    Items of an outcome with their letters, until enough are going.

    No more at a time than are missing; of the letters, those that are still there.
    """
    behind = -1
    while len(going) < limit:
        asked = {"outcome": outcome.value, "campaign": course.seq, "ordinal": {"$gt": behind}}
        found = turn.there.items.find(asked, session=turn.session)
        items = await found.sort("ordinal", 1).limit(limit - len(going)).to_list()
        if not items:
            return
        behind = items[-1]["ordinal"]
        letters = await MongodbOperations(turn).find_briefs([item["letter_id"] for item in items])
        yield items, {brief.seq: brief for brief in letters}


async def _send(
    turn: Turn,
    course: CampaignTally,
    generation: int,
    some: Sequence[tuple[Document, Brief]],
    now: datetime,
) -> None:
    for _, brief in some:
        changes = {brief.state: -1, State.REPLAYING: 1}
        turn.shift(brief.source, brief.fingerprint, changes)
    await turn.there.letters.update_many(
        {"_id": {"$in": [brief.id for _, brief in some]}},
        {"$set": {"state": State.REPLAYING.value, "replays": generation}, "$inc": {"revision": 1}},
        session=turn.session,
    )
    await turn.there.items.update_many(
        {"_id": {"$in": [item["_id"] for item, _ in some]}},
        {
            "$set": {
                "outcome": Outcome.SENDING.value,
                "taken": number(now),
                "generation": generation,
            }
        },
        session=turn.session,
    )
    seqs = [brief.seq for _, brief in some]
    course.count(turn, Outcome.PLANNED, Outcome.SENDING, seqs)


async def _skip(
    turn: Turn, course: CampaignTally, items: Sequence[Document], before: Outcome, now: datetime
) -> None:
    if items:
        ordinals = [item["ordinal"] for item in items]
        store = MongodbOperations(turn)
        await store.settle_items(course.seq, ordinals, Outcome.SKIPPED, now)
        letters = [item["letter"] for item in items]
        course.count(turn, before, Outcome.SKIPPED, letters)


async def _end_keys(  # noqa: PLR0917 -- a step of `take_next`
    turn: Turn,
    course: CampaignTally,
    items: Sequence[Document],
    letters: Mapping[int, Brief],
    leave_out: Collection[str],
    now: datetime,
) -> None:
    """Say what becomes of those that wait behind items which were skipped."""
    if not course.keyed or not items:
        return
    holding = [
        item["letter"]
        for item in items
        if (brief := letters.get(item["letter"])) is not None
        and brief.id not in leave_out
        and still_needed(brief.state, brief.replays, course.cap)
    ]
    freeing = [one["letter"] for one in items if one["letter"] not in holding]
    await free_behind(turn, course, freeing)
    await hold_behind(turn, course, holding, now)


async def _copies(turn: Turn, going: dict[Brief, int]) -> list[ReplayTaken]:
    there, session = turn.there, turn.session
    asked = {"_id": {"$in": [stored(brief.id) for brief in going]}}
    found = await there.letters.find(asked, _SENT_OUT, session=session).to_list()
    by_seq = await bodies(there, session, found)
    by_id = {one["_id"]: one for one in found}
    taken: list[ReplayTaken] = []
    for brief, generation in going.items():
        one = by_id[brief.id]
        body = by_seq[one["seq"]]
        check_body(one, body)
        message = unpack_message(one["rest"], body)
        taken.append(ReplayTaken(brief.id, shown(one["source"]), message, generation))
    return taken
