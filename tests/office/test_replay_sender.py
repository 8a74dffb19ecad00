"""Campaigns in the background: one sender at a time, and none is forgotten."""

from collections.abc import AsyncIterator

import pytest

from deadletter.core.campaign import CampaignState, unsent
from deadletter.core.errors import Conflict, Refused, Unavailable
from deadletter.core.events import Event, LoopDied
from deadletter.office.replay import Replay
from deadletter.office.replay_sender import ReplaySender
from deadletter.ports import Engine, LetterStore
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, eventually
from office.making import BY, make_letters


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
async def crew(
    engine: Engine, replay: Replay, told: list[Event]
) -> AsyncIterator[list[ReplaySender]]:
    """Two servers of one office."""
    some = [
        ReplaySender(
            replay, engine.ledger, name, clock=SystemClock(), observe=told.append, lease=30.0
        )
        for name in ("a", "b")
    ]
    yield some
    for one in some:
        await one.close()


async def begun(store: LetterStore, replay: Replay, *, rate: float | None = None) -> str:
    await store.keep(make_letters(40))
    campaign = await replay.start("*", BY, rate=rate)
    return campaign.id


async def test_a_campaign_is_sent_to_its_end(
    store: LetterStore, replay: Replay, crew: list[ReplaySender]
) -> None:
    campaign = await begun(store, replay)

    assert await crew[0].send(campaign)

    async def all_sent() -> bool:
        return unsent(await replay.status(campaign)) == 0

    await eventually(all_sent)


async def test_a_replay_is_sent_by_one_process_only(
    store: LetterStore, replay: Replay, crew: list[ReplaySender]
) -> None:
    campaign = await begun(store, replay, rate=0.1)

    assert await crew[0].send(campaign)
    assert await crew[0].send(campaign)  # it does already
    assert not await crew[1].send(campaign)
    await crew[1].adopt()

    assert campaign not in crew[1].under_way


async def test_replays_sent_by_a_command_are_left_to_the_command(
    store: LetterStore, replay: Replay, crew: list[ReplaySender]
) -> None:
    campaign = await begun(store, replay)

    await crew[0].adopt()

    assert campaign not in crew[0].under_way
    assert unsent(await replay.status(campaign)) == 40


async def test_replays_left_by_a_stopped_server_are_continued_by_the_next(
    store: LetterStore, replay: Replay, crew: list[ReplaySender]
) -> None:
    campaign = await begun(store, replay, rate=0.1)
    await crew[0].send(campaign)
    await crew[0].close()

    await crew[1].adopt()

    assert campaign in crew[1].under_way


async def test_paused_replays_are_not_continued_but_can_be_resumed_anywhere(
    store: LetterStore, replay: Replay, crew: list[ReplaySender], clock: FakeClock
) -> None:
    campaign = await begun(store, replay, rate=1.0)
    await crew[0].send(campaign)
    await replay.pause(campaign, BY)

    async def ended() -> bool:
        clock.advance(1.0)  # it hears of the pause when it is about to send the next
        return campaign not in crew[0].under_way

    await eventually(ended)
    await crew[1].adopt()
    assert campaign not in crew[1].under_way
    await replay.resume(campaign, BY)

    async def taken() -> bool:
        return await crew[1].send(campaign)

    await eventually(taken)


async def test_a_store_out_of_reach_is_waited_for(
    store: LetterStore, replay: Replay, crew: list[ReplaySender], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = await begun(store, replay)
    real, calls = replay.run, 0

    async def run(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("gone for a moment")
        return await real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(replay, "run", run)
    monkeypatch.setattr("deadletter.office.replay_sender._WAITS", (0.01,))
    await crew[0].send(campaign)

    async def all_sent() -> bool:
        return unsent(await replay.status(campaign)) == 0

    await eventually(all_sent)


async def test_a_campaign_that_is_refused_is_paused_with_the_reason(
    store: LetterStore, replay: Replay, crew: list[ReplaySender], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = await begun(store, replay)

    async def run(*args: object, **options: object) -> object:
        raise Refused("no such topic")

    monkeypatch.setattr(replay, "run", run)
    await crew[0].send(campaign)

    async def paused() -> bool:
        found = await replay.status(campaign)
        return found.state is CampaignState.PAUSED

    await eventually(paused)
    *_, entry = await store.audit(target=campaign)
    assert entry.reason == "no such topic"


async def test_a_mistake_of_ours_does_not_leave_a_campaign_lying(
    store: LetterStore,
    replay: Replay,
    crew: list[ReplaySender],
    told: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    campaign = await begun(store, replay)
    real, calls = replay.run, 0

    async def run(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise TypeError("a mistake of ours")
        return await real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(replay, "run", run)
    monkeypatch.setattr("deadletter.office.replay_sender._WAITS", (0.01,) * 4)
    await crew[0].send(campaign)

    async def all_sent() -> bool:
        return unsent(await replay.status(campaign)) == 0

    await eventually(all_sent)
    assert [type(event) for event in told] == [LoopDied, LoopDied]


async def test_a_mistake_that_stays_pauses_the_campaign(
    store: LetterStore, replay: Replay, crew: list[ReplaySender], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = await begun(store, replay)

    async def run(*args: object, **options: object) -> object:
        raise TypeError("a mistake of ours, password=hunter2")

    monkeypatch.setattr(replay, "run", run)
    monkeypatch.setattr("deadletter.office.replay_sender._WAITS", (0.01,) * 4)
    await crew[0].send(campaign)

    async def paused() -> bool:
        found = await replay.status(campaign)
        return found.state is CampaignState.PAUSED

    await eventually(paused)
    *_, entry = await store.audit(target=campaign)
    assert entry.actor == "dlq serve"
    assert "a mistake of ours" in entry.reason
    assert "hunter2" not in entry.reason


async def test_a_start_that_is_refused_leaves_nothing_behind(
    store: LetterStore, replay: Replay, crew: list[ReplaySender]
) -> None:
    """What a command sends is not taken from it because somebody pressed start."""
    campaign = await begun(store, replay, rate=0.1)

    with pytest.raises(Conflict, match="running"):
        await crew[0].start(campaign, BY)
    for one in crew:
        await one.adopt()

    assert not crew[0].under_way | crew[1].under_way


async def test_a_sender_that_lost_its_lease_stops_sending(
    engine: Engine, store: LetterStore, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = await begun(store, replay, rate=0.1)
    clock, ledger = FakeClock(), engine.ledger
    assert ledger is not None
    sender = ReplaySender(replay, ledger, "a", clock=clock, observe=lambda event: None, lease=0.03)
    await sender.send(campaign)

    async def begin(*args: object, **options: object) -> object:
        clock.advance(1.0)
        raise TypeError("a mistake of ours")

    monkeypatch.setattr(ledger, "begin", begin)

    await eventually(lambda: campaign not in sender.under_way)


async def test_replays_paused_when_a_server_ended_wait_to_be_resumed(
    store: LetterStore, replay: Replay, crew: list[ReplaySender]
) -> None:
    campaign = await begun(store, replay, rate=0.1)
    await crew[0].send(campaign)
    await replay.pause(campaign, BY)
    await crew[0].close()
    await replay.resume(campaign, BY)  # a command, which sends it itself

    await crew[1].adopt()

    assert campaign not in crew[1].under_way
