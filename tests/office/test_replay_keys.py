"""Replays of letters that have keys: one after the other, whole keys at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from deadletter.core.campaign import CampaignState, Care, Outcome
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LedgerKey, LedgerState, LetterStore, ReplaySettled
from office.making import BY, NOW, make_letter
from office.sending import received


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at outcomes are ten times as frequent."""
    for module in ("replay", "replay_steps"):
        monkeypatch.setattr(f"deadletter.office.{module}.LOOK", 0.02)


@asynccontextmanager
async def consumer(
    engine: Engine, store: LetterStore, fails: Callable[[str], bool]
) -> AsyncIterator[list[list[str]]]:
    """Settle copies as they come; gives the ids of each lot."""
    seen: list[list[str]] = []

    async def consume() -> None:
        while True:
            copies = [one.message for one in await received(engine)]
            news = [
                ReplaySettled(
                    one.lineage.letter_id,
                    one.lineage.generation,
                    Outcome.FAILED if fails(one.id) else Outcome.CONFIRMED,
                )
                for one in copies
                if one.lineage
            ]
            if news:
                seen.append([one.id for one in copies])
                await store.settle_replays(news)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(consume())
    try:
        yield seen
    finally:
        task.cancel()


async def keep(store: LetterStore, *keys: str | None) -> None:
    """Keep a letter for each key, m-0 sent first and dead first as well."""
    await store.keep(
        [
            make_letter(n, key=key, died=timedelta(minutes=60 - n), now=NOW)
            for n, key in enumerate(keys)
        ]
    )


async def test_letters_of_a_key_come_back_in_the_order_they_were_sent(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await keep(store, "a", "b", "a", "a", None, "b")
    campaign = await replay.start("*", BY)

    async with consumer(engine, store, fails=lambda _: False) as seen:
        await replay.run(campaign.id)
        done = await replay.wait_confirmed(campaign.id, timeout=10)

    came = [one for lot in seen for one in lot]
    of_a = [one for one in came if one in {"m-0", "m-2", "m-3"}]
    assert of_a == ["m-0", "m-2", "m-3"]
    assert came.index("m-1") < came.index("m-5")
    assert set(came[:3]) == {"m-0", "m-1", "m-4"}
    assert done.counts.get(Outcome.WAITING, 0) == 0


async def test_a_key_that_fails_is_held_and_the_others_go_on(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await keep(store, "a", "b", "a", "b", "a")
    campaign = await replay.start("*", BY, care=Care(halt_on=1.0))

    async with consumer(engine, store, fails=lambda id_: id_ == "m-0"):
        await replay.run(campaign.id)
        done = await replay.wait_confirmed(campaign.id, timeout=10)

    assert done.state is CampaignState.DONE
    assert done.counts == {Outcome.FAILED: 1, Outcome.HELD: 2, Outcome.CONFIRMED: 2}


async def test_a_canary_is_made_of_whole_keys(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await keep(store, "a", "a", "b", "a", "b")
    campaign = await replay.start("*", BY, care=Care(canary=2))

    async with consumer(engine, store, fails=lambda id_: id_ == "m-3"):
        halted = await replay.run(campaign.id)

    assert halted.state is CampaignState.PAUSED
    assert halted.counts[Outcome.CONFIRMED] == 2
    assert halted.counts[Outcome.FAILED] == 1
    assert halted.counts[Outcome.PLANNED] + halted.counts[Outcome.WAITING] == 2


async def test_letters_that_wait_are_left_to_whoever_resumes(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await keep(store, "a", "a")
    campaign = await replay.start("*", BY)

    paused = await replay.run(campaign.id, patience=-1.0)
    await replay.resume(campaign.id, BY)
    async with consumer(engine, store, fails=lambda _: False):
        await replay.run(campaign.id)
        done = await replay.wait_confirmed(campaign.id, timeout=10)

    assert paused.state is CampaignState.PAUSED
    assert paused.counts == {Outcome.SENT: 1, Outcome.WAITING: 1}
    assert done.counts == {Outcome.CONFIRMED: 2}


async def test_letters_processed_after_planning_are_not_sent(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([make_letter(n, idempotency_key=f"k-{n}") for n in range(3)])
    campaign = await replay.start("*", BY)
    assert engine.ledger is not None
    (claim,) = await engine.ledger.begin([LedgerKey("orders", "k-1")], lease=60)
    await engine.ledger.finish([(claim, LedgerState.PROCESSED)], ttl=600)

    sent = await replay.run(campaign.id)

    assert sent.counts == {Outcome.SENT: 2, Outcome.SKIPPED: 1}


async def test_the_limit_counts_what_is_sent(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await keep(store, *[None] * 6)
    for _ in range(2):
        campaign = await replay.start("*", BY, limit=2)
        await replay.run(campaign.id)

    came = [one.message.id for one in await received(engine)]

    assert came == ["m-0", "m-1", "m-2", "m-3"]
