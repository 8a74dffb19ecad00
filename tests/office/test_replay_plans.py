"""Plans that nobody starts: they hold nothing, hide nothing, and end by themselves."""

from datetime import timedelta

import pytest

from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.errors import Conflict
from deadletter.core.letter import State
from deadletter.office.replay import Replay
from deadletter.office.selection import PLAN_DAYS
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letters

WEEK = timedelta(days=PLAN_DAYS)


async def planned(store: LetterStore, replay: Replay) -> Campaign:
    letters = make_letters(3)
    await store.keep(letters)
    ids = [letter.id for letter in letters]
    return await replay.begin(ids, BY, query="*", hold=True)


async def test_the_letters_of_a_plan_are_free(store: LetterStore, replay: Replay) -> None:
    await planned(store, replay)

    other = await replay.start("is:pending", BY)
    sent = await replay.run(other.id)

    assert sum(sent.counts.values()) == 3
    assert (await store.counts())["orders"][State.REPLAYING] == 3


async def test_a_plan_can_be_started_while_it_is_young(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    plan = await planned(store, replay)
    clock.advance(WEEK.total_seconds())

    assert await replay.let_go_of_plans("dlq serve") == 0
    started = await replay.resume(plan.id, BY)

    assert started.state is CampaignState.RUNNING


async def test_outdated_plans_are_not_sent(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    plan = await planned(store, replay)
    clock.advance(WEEK.total_seconds() + 1)

    with pytest.raises(Conflict, match="plan it again"):
        await replay.resume(plan.id, BY)


async def test_a_plan_whose_time_is_over_is_cancelled_and_says_why(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    old = await planned(store, replay)
    running = await replay.start("is:pending", BY)
    clock.advance(WEEK.total_seconds())
    young = await planned(store, replay)
    clock.advance(1.0)

    assert await replay.let_go_of_plans("dlq serve") == 1

    states = {one.id: one.state for one in await replay.latest()}
    assert states == {
        old.id: CampaignState.CANCELLED,
        running.id: CampaignState.RUNNING,
        young.id: CampaignState.PLANNED,
    }
    *_, entry = await store.audit(target=old.id)
    assert entry.actor == "dlq serve"
    assert f"within {PLAN_DAYS} days" in entry.reason
    assert await replay.let_go_of_plans("dlq serve") == 0


async def test_a_replay_is_found_behind_a_thousand_plans(
    store: LetterStore, replay: Replay
) -> None:
    plan = await planned(store, replay)
    running = await replay.start("is:pending", BY)
    for _ in range(1_001):
        await replay.begin(["nothing"], BY, query="*", hold=True)

    assert (await replay.pause(running.id, BY)).state is CampaignState.PAUSED
    assert (await replay.status(plan.id)).id == plan.id
