"""A replay that looks at what becomes of its letters, and stops by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deadletter.core.campaign import Campaign, CampaignState, Care, Outcome
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.letter import By, State
from deadletter.office.replay import ITSELF, Replay
from deadletter.office.replay_steps import PATIENCE
from deadletter.ports import Engine, LetterStore, ReplaySettled
from deadletter.testing.fakes import FakeClock, eventually
from office.making import BY, make_letters
from office.sending import received


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at outcomes are ten times as frequent."""
    for module in ("replay", "replay_steps"):
        monkeypatch.setattr(f"deadletter.office.{module}.LOOK", 0.02)


@asynccontextmanager
async def consumer(
    engine: Engine, store: LetterStore, fails: Callable[[int], bool], clock: FakeClock | None = None
) -> AsyncIterator[list[int]]:
    """Settles copies as they come; gives how many there were each time."""
    seen: list[int] = []

    async def consume() -> None:
        while True:
            copies = await received(engine)
            lineages = [one.message.lineage for one in copies if one.message.lineage]
            news = []
            for number, one in enumerate(lineages, sum(seen)):
                outcome = Outcome.FAILED if fails(number) else Outcome.CONFIRMED
                news.append(ReplaySettled(one.letter_id, one.generation, outcome))
            if news:
                seen.append(len(news))
                await store.settle_replays(news)
            await asyncio.sleep(0.01)
            if clock is not None:
                clock.advance(seconds=0.05)

    task = asyncio.create_task(consume())
    try:
        yield seen
    finally:
        task.cancel()


async def ready(replay: Replay, store: LetterStore, letters: int, care: Care) -> Campaign:
    await store.keep(make_letters(letters))
    return await replay.start("is:pending", BY, care=care)


async def are_out(replay: Replay, campaign: Campaign, letters: int) -> None:
    async def look() -> bool:
        found = await replay.status(campaign.id)
        return found.counts.get(Outcome.SENT) == letters

    await eventually(look)


async def test_a_canary_goes_first_and_the_others_when_it_was_handled(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 30, Care(canary=5))
    waited: list[int] = []
    run = asyncio.create_task(replay.run(campaign.id, on_wait=waited.append))

    async def is_waiting() -> bool:
        return bool(waited)

    await eventually(is_waiting)  # nobody consumes yet
    async with consumer(engine, store, lambda _: False) as seen:
        await run
        campaign = await replay.wait_confirmed(campaign.id, timeout=60)

    assert seen[0] == 5
    assert waited[0] == 5
    assert campaign.state is CampaignState.DONE
    assert campaign.counts == {Outcome.CONFIRMED: 30}


async def test_a_ramp_grows_with_every_step_that_went_well(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 150, Care(ramp=True))

    async with consumer(engine, store, lambda _: False) as seen:
        await replay.run(campaign.id)
        campaign = await replay.wait_confirmed(campaign.id, timeout=60)

    assert campaign.counts == {Outcome.CONFIRMED: 150}
    sums = [sum(seen[: n + 1]) for n in range(len(seen))]
    assert {1, 10, 100} <= set(sums)


async def test_a_replay_pauses_when_its_canary_fails(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 30, Care(canary=5))

    async with consumer(engine, store, lambda number: number % 2 == 0):
        campaign = await replay.run(campaign.id)

    assert campaign.state is CampaignState.PAUSED
    assert campaign.counts[Outcome.PLANNED] == 25
    assert (await store.counts())["orders"][State.PENDING] >= 25
    last = (await store.audit(target=campaign.id, limit=10))[-1]
    assert last.actor == ITSELF
    assert last.reason.startswith("stopped by itself: ")
    assert "of 5 failed again, where 10% may" in last.reason


async def test_letters_that_fail_after_they_were_confirmed_count_as_failed(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 60, Care(canary=40))
    running = asyncio.create_task(replay.run(campaign.id))
    await are_out(replay, campaign, 40)
    copies = [one.message.lineage for one in await received(engine)]
    news = [ReplaySettled(c.letter_id, 1, Outcome.CONFIRMED) for c in copies if c]
    await store.settle_replays(news[:39])  # all but one are handled: it waits

    late = [ReplaySettled(one.letter_id, 1, Outcome.FAILED) for one in news[:10]]
    await store.settle_replays(late)
    campaign = await asyncio.wait_for(running, 30)

    assert campaign.state is CampaignState.PAUSED
    assert campaign.counts == {
        Outcome.CONFIRMED: 29,
        Outcome.FAILED: 10,
        Outcome.SENT: 1,
        Outcome.PLANNED: 20,
    }
    last = (await store.audit(target=campaign.id, limit=10))[-1]
    assert "10 of the first 40 failed again, where 10% may" in last.reason


async def test_a_resumed_replay_begins_with_a_canary(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 30, Care(canary=5))
    async with consumer(engine, store, lambda _: True):
        campaign = await replay.run(campaign.id)
    assert campaign.counts == {Outcome.FAILED: 5, Outcome.PLANNED: 25}

    await replay.resume(campaign.id, By("anna", "mended"))
    async with consumer(engine, store, lambda _: False) as seen:
        await replay.run(campaign.id)
        campaign = await replay.wait_confirmed(campaign.id, timeout=60)

    assert seen[0] == 5
    assert campaign.state is CampaignState.DONE
    assert campaign.counts == {Outcome.FAILED: 5, Outcome.CONFIRMED: 25}


async def test_any_replay_stops_when_most_of_it_fails(
    replay: Replay, engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    campaign = await ready(replay, store, 400, Care())

    async with consumer(engine, store, lambda _: True, clock):
        campaign = await asyncio.wait_for(replay.run(campaign.id, rate=100), 30)

    assert campaign.state is CampaignState.PAUSED
    assert 20 <= campaign.counts[Outcome.FAILED] < 400
    assert campaign.counts[Outcome.PLANNED] > 0


async def test_without_anything_left_to_send_nothing_is_waited_for(
    replay: Replay, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 5, Care(canary=5))

    campaign = await asyncio.wait_for(replay.run(campaign.id), 10)

    assert campaign.counts == {Outcome.SENT: 5}


async def test_a_fully_sent_replay_is_not_paused_by_failures(
    replay: Replay, engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    campaign = await ready(replay, store, 30, Care())

    async with consumer(engine, store, lambda _: True, clock):
        await asyncio.wait_for(replay.run(campaign.id, rate=20), 30)
        campaign = await replay.wait_confirmed(campaign.id, timeout=60)

    # Whatever was quicker: it is paused only while there is something to spare.
    is_paused = campaign.state is CampaignState.PAUSED
    assert is_paused is bool(campaign.counts.get(Outcome.PLANNED))
    assert is_paused is (campaign.state is not CampaignState.DONE)


async def test_a_canary_that_is_all_there_is_ends_the_replay(
    replay: Replay, engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    campaign = await ready(replay, store, 5, Care(canary=5))

    async with consumer(engine, store, lambda _: True, clock):
        await asyncio.wait_for(replay.run(campaign.id), 30)
        campaign = await replay.wait_confirmed(campaign.id, timeout=60)

    assert campaign.state is CampaignState.DONE
    assert campaign.counts == {Outcome.FAILED: 5}


async def test_the_rest_of_a_killed_replay_begins_with_a_canary(
    replay: Replay, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 20, Care(canary=5))
    await store.take_replay(campaign.id, limit=20)  # and then it was killed
    running = asyncio.create_task(replay.run(campaign.id))
    await are_out(replay, campaign, 5)
    await replay.pause(campaign.id, BY)

    assert (await running).counts[Outcome.SENDING] == 15


async def test_a_store_out_of_reach_is_no_reason_for_another_canary(
    replay: Replay, store: LetterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = await ready(replay, store, 20, Care(canary=5))
    status, asked = replay.status, 0

    async def flapping(campaign_id: str) -> Campaign:
        nonlocal asked
        asked += 1
        if 2 < asked < 6:
            raise Unavailable("gone for a moment")
        return await status(campaign_id)

    monkeypatch.setattr(replay, "status", flapping)

    running = asyncio.create_task(replay.run(campaign.id))
    await eventually(lambda: asked > 6)
    await replay.pause(campaign.id, BY)

    assert (await running).counts == {Outcome.SENT: 5, Outcome.PLANNED: 15}


@pytest.mark.parametrize(
    "wish", [{"rate": float("inf")}, {"rate": float("nan")}, {"rate": 1e9}, {"cap": 10**30}]
)
async def test_numbers_that_make_no_sense_are_never_kept(
    replay: Replay, store: LetterStore, wish: dict[str, Any]
) -> None:
    await store.keep(make_letters(2))

    with pytest.raises(ConfigError, match=r"rate|cap"):
        await replay.start("*", BY, **wish)

    assert await replay.latest() == []


async def test_the_last_letter_is_not_waited_for(replay: Replay, store: LetterStore) -> None:
    campaign = await ready(replay, store, 1, Care())

    campaign = await asyncio.wait_for(replay.run(campaign.id, rate=0.01), 5)

    assert campaign.counts == {Outcome.SENT: 1}


async def test_a_share_that_was_said_holds_however_quick_sending_is(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    campaign = await ready(replay, store, 300, Care(halt_on=0.01))

    async with consumer(engine, store, lambda _: True):
        campaign = await replay.run(campaign.id)

    assert campaign.state is CampaignState.PAUSED
    assert campaign.counts[Outcome.PLANNED] == 280


async def test_care_that_makes_no_sense_is_never_kept(replay: Replay, store: LetterStore) -> None:
    await store.keep(make_letters(2))

    with pytest.raises(ConfigError, match="canary"):
        await replay.start("*", BY, care=Care(canary=0))

    assert await replay.latest() == []


async def test_a_waiting_replay_can_be_paused(replay: Replay, store: LetterStore) -> None:
    campaign = await ready(replay, store, 9, Care(canary=5))
    running = asyncio.create_task(replay.run(campaign.id))
    await are_out(replay, campaign, 5)
    await replay.pause(campaign.id, BY)

    assert (await asyncio.wait_for(running, 10)).state is CampaignState.PAUSED
    assert (await store.audit(target=campaign.id, limit=10))[-1].actor == "anna"


async def test_when_nobody_works_it_says_so(
    replay: Replay, store: LetterStore, clock: FakeClock
) -> None:
    campaign = await ready(replay, store, 9, Care(canary=5))

    campaign = await replay.run(campaign.id, on_wait=lambda _: clock.advance(seconds=PATIENCE))

    assert campaign.state is CampaignState.PAUSED
    last = (await store.audit(target=campaign.id, limit=10))[-1]
    assert "5 of those sent have no outcome after 15 minutes" in last.reason


@pytest.mark.parametrize("care", [Care(halt_on=1), Care(canary=5, halt_on=1)])
async def test_never_is_never(
    replay: Replay, engine: Engine, store: LetterStore, care: Care
) -> None:
    campaign = await ready(replay, store, 40, care)

    async with consumer(engine, store, lambda _: True):
        await replay.run(campaign.id)
        campaign = await replay.wait_confirmed(campaign.id, timeout=60)

    assert campaign.counts == {Outcome.FAILED: 40}
