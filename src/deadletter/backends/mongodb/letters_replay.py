"""Letters of a campaign: taken bit by bit, sent, and settled as news comes in."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence, Sized
from datetime import datetime
from typing import Final

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.escaping import shown, stored
from deadletter.core.letter import By, State
from deadletter.core.packing import unpack_message
from deadletter.core.replaying import SETTLED_FROM, heard, is_out, landing, take
from deadletter.ports.letters import ReplaySettled, ReplayTaken

from .campaigns import Course, courses, existing
from .letters_documents import bodies, check_body
from .letters_moves import Brief, given, set_states
from .schema import Document
from .times import number
from .turn import Turn

# When it had been confirmed, of an item that was.
_LATE: Final = {
    "confirmed": {
        "$cond": [
            {"$eq": ["$outcome", Outcome.CONFIRMED.value]},
            "$settled",
            "$$REMOVE",
        ]
    }
}
_SENT_OUT: Final = dict.fromkeys(("seq", "source", "digest", "rest", "body"), 1)


async def take_next(
    turn: Turn, campaign: str, limit: int, now: datetime
) -> list[ReplayTaken]:
    """Claim the next letters of a running campaign, the interrupted ones first."""
    course = await existing(turn, campaign)
    if course.state is not CampaignState.RUNNING:
        return []
    going: dict[Brief, int] = {}  # with their generations
    await _take_again(turn, course, limit, going, now)
    await _take_planned(turn, course, limit, going, now)
    course.finish()
    await course.write(turn)
    return await _copies(turn, going)


async def sent(
    turn: Turn, campaign: str, letters: Sequence[str], now: datetime
) -> None:
    """Record that the broker has the copies of these letters."""
    course = await existing(turn, campaign)
    seqs = [brief.seq for brief in await given(turn, letters)]
    changed = await turn.there.items.update_many(
        {
            "campaign": course.seq,
            "letter": {"$in": seqs},
            "outcome": Outcome.SENDING.value,
        },
        {"$set": {"outcome": Outcome.SENT.value, "sent": number(now)}},
        session=turn.session,
    )
    course.count(Outcome.SENDING, Outcome.SENT, changed.modified_count)
    await course.write(turn)


async def settle(turn: Turn, news: Sequence[ReplaySettled], now: datetime) -> None:
    """Record what became of copies; campaigns may end by it."""
    if not news:
        return
    told = heard((one.letter_id, one.generation, one.outcome) for one in news)
    letters = {one.seq: one for one in await given(turn, [id_ for id_, _ in told])}
    most = sorted(SETTLED_FROM[Outcome.FAILED])
    asked = {"letter": {"$in": list(letters)}, "outcome": {"$in": most}}
    items = await turn.there.items.find(asked, session=turn.session).to_list()
    under_way = await courses(turn, (item["campaign"] for item in items))
    targets: dict[Brief, State] = {}
    settled: defaultdict[Outcome, list[Document]] = defaultdict(list)
    for item in items:
        brief, generation = letters[item["letter"]], item["generation"]
        outcome = told.get((brief.id, generation))
        if outcome is None or item["outcome"] not in SETTLED_FROM[outcome]:
            continue  # news of another copy, or none at all
        course = under_way[item["campaign"]]
        settled[outcome].append(item)
        course.count(Outcome(item["outcome"]), outcome)
        state = landing(brief.state, brief.replays, generation, outcome, course.cap)
        if state is not None:
            targets[brief] = state
    await set_states(turn, targets)
    for outcome, some in settled.items():
        await _mark(turn, some, outcome, now)
    for seq in {item["campaign"] for some in settled.values() for item in some}:
        under_way[seq].finish()
        await under_way[seq].write(turn)


async def _take_again(
    turn: Turn, course: Course, limit: int, going: dict[Brief, int], now: datetime
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


async def _take_planned(
    turn: Turn, course: Course, limit: int, going: dict[Brief, int], now: datetime
) -> None:
    """The next letters that were only planned, if they may go out."""
    async for items, letters in _next(turn, course, Outcome.PLANNED, limit, going):
        taken: defaultdict[int, list[tuple[Document, Brief]]] = defaultdict(list)
        left: list[Document] = []
        for item in items:
            brief = letters.get(item["letter"])
            if brief is None:  # purged since
                left.append(item)
                continue
            outcome, after = take(brief.state, brief.replays, course.cap)
            if outcome is Outcome.SENDING:
                taken[brief.replays + 1].append((item, brief))
                going[brief] = brief.replays + 1
                continue
            left.append(item)
            if after is not brief.state:
                await _quarantine(turn, course, brief, now)
        for generation, some in taken.items():
            await _send(turn, course, generation, some, now)
        await _skip(turn, course, left, Outcome.PLANNED, now)


async def _next(
    turn: Turn, course: Course, outcome: Outcome, limit: int, going: Sized
) -> AsyncIterator[tuple[list[Document], dict[int, Brief]]]:
    """
    Items of an outcome with their letters, until enough are going.

    No more at a time than are missing; of the letters, those that are still there.
    """
    behind = -1
    while len(going) < limit:
        asked = {
            "outcome": outcome.value,
            "campaign": course.seq,
            "ordinal": {"$gt": behind},
        }
        found = turn.there.items.find(asked, session=turn.session)
        items = await found.sort("ordinal", 1).limit(limit - len(going)).to_list()
        if not items:
            return
        behind = items[-1]["ordinal"]
        letters = await given(turn, [item["letter_id"] for item in items])
        yield items, {brief.seq: brief for brief in letters}


async def _send(
    turn: Turn,
    course: Course,
    generation: int,
    some: Sequence[tuple[Document, Brief]],
    now: datetime,
) -> None:
    letters = {brief: State.REPLAYING for _, brief in some}
    await set_states(turn, letters, replays=generation)
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
    course.count(Outcome.PLANNED, Outcome.SENDING, len(some))


async def _skip(
    turn: Turn,
    course: Course,
    items: Sequence[Document],
    before: Outcome,
    now: datetime,
) -> None:
    if items:
        await _mark(turn, items, Outcome.SKIPPED, now)
        course.count(before, Outcome.SKIPPED, len(items))


async def _quarantine(turn: Turn, course: Course, brief: Brief, now: datetime) -> None:
    await set_states(turn, {brief: State.QUARANTINED})
    by = By(course.actor, f"replayed {course.cap} times, which is the cap")
    detail = f"by campaign {course.id}"
    turn.act("quarantine", brief.id, by, at=now, detail=detail)


async def _mark(
    turn: Turn, items: Iterable[Document], outcome: Outcome, now: datetime
) -> None:
    await turn.there.items.update_many(
        {"_id": {"$in": [item["_id"] for item in items]}},
        [{"$set": {**_LATE, "outcome": outcome.value, "settled": number(now)}}],
        session=turn.session,
    )


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
