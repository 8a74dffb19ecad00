"""Plans kept with their campaign: frozen at once, judged in slices, started as wished."""

import asyncio
from datetime import timedelta

import pytest

from deadletter.core.campaign import Campaign, CampaignState, Care, Outcome, Verdict, unsent
from deadletter.core.errors import Conflict
from deadletter.core.letter import DeadLetter
from deadletter.office import replay_plans
from deadletter.office.replay import Replay
from deadletter.office.replay_plans import FRESH, PlanWish, plan_of
from deadletter.office.replay_sender import ReplaySender
from deadletter.ports import Engine, LedgerKey, LedgerState, LetterStore, QueueOptions
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, SeededDice, eventually
from office.making import BY, make_letter, make_letters
from office.sending import received

NO_WISH = PlanWish()
SLICE = 8


@pytest.fixture(autouse=True)
async def small(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_plans, "SLICE", SLICE)
    await engine.broker.create(QueueOptions(name="orders"))


async def frozen(
    store: LetterStore, replay: Replay, letters: list[DeadLetter], **how: object
) -> Campaign:
    await store.keep(letters)
    ids = [letter.id for letter in letters]
    return await replay.freeze(ids, BY, query="*", **how)  # type: ignore[arg-type]


async def judged(replay: Replay, campaign: Campaign) -> Campaign:
    while await replay.judge_some(campaign.id):
        pass
    return await replay.status(campaign.id)


async def processed(engine: Engine, letter: DeadLetter) -> None:
    ledger = engine.ledger
    assert ledger is not None
    key = LedgerKey.of_message("orders", letter.head.message_id, letter.head.replays)
    (claim,) = await ledger.begin([key], lease=60)
    await ledger.finish([(claim, LedgerState.PROCESSED)], ttl=3600)


def mixed() -> list[DeadLetter]:
    """Ten plain letters and three with credentials, oldest last."""
    plain = make_letters(10)
    secret = [
        make_letter(n, headers={"authorization": "x"}, died=timedelta(minutes=9, seconds=n))
        for n in range(20, 23)
    ]
    return [*plain, *secret]


async def test_freezing_answers_before_anything_is_judged(
    store: LetterStore, replay: Replay
) -> None:
    campaign = await frozen(store, replay, make_letters(3))
    await store.keep([make_letter(99)])  # too late to be part of it

    found = await replay.status(campaign.id)

    assert found.state is CampaignState.PLANNED
    assert found.plan is not None
    assert (found.plan.total, found.plan.judged, found.plan.is_judged) == (3, 0, False)
    assert found.counts == {}
    assert unsent(found) == 3


async def test_letters_are_judged_in_slices_that_add_up(store: LetterStore, replay: Replay) -> None:
    campaign = await frozen(store, replay, make_letters(SLICE + 5))

    assert await replay.judge_some(campaign.id)
    half = (await replay.status(campaign.id)).plan
    assert half is not None
    assert (half.judged, half.is_judged, half.verdicts) == (SLICE, False, {Verdict.READY: SLICE})
    assert not await replay.judge_some(campaign.id)

    whole = (await replay.status(campaign.id)).plan
    assert whole is not None
    assert (whole.judged, whole.is_judged) == (SLICE + 5, True)
    assert whole.targets == {Verdict.READY: {"orders": SLICE + 5}}


async def test_a_plan_is_not_started_before_all_its_letters_are_judged(
    store: LetterStore, replay: Replay
) -> None:
    campaign = await frozen(store, replay, make_letters(SLICE + 1))
    await replay.judge_some(campaign.id)

    with pytest.raises(Conflict, match="8 of 9 letters"):
        await replay.agree(campaign.id, BY, NO_WISH)
    with pytest.raises(Conflict, match="8 of 9 letters"):
        await replay.resume(campaign.id, BY)


async def test_verdicts_are_left_out_and_included_as_wished(
    store: LetterStore, engine: Engine, replay: Replay
) -> None:
    letters = mixed()
    await processed(engine, letters[0])
    campaign = await judged(replay, await frozen(store, replay, letters))
    assert campaign.plan is not None
    assert campaign.plan.verdicts == {
        Verdict.READY: 9, Verdict.CREDENTIALS: 3, Verdict.PROCESSED: 1
    }  # fmt: skip
    assert plan_of(campaign).sendable == 12

    page = await replay.verdicts_of(campaign, verdict=Verdict.CREDENTIALS, limit=2)
    assert [one.letter_id for one in page.letters] == [letters[12].id, letters[11].id]
    rest = await replay.verdicts_of(
        campaign, verdict=Verdict.CREDENTIALS, after=page.after or 0, limit=5
    )
    assert [one.letter_id for one in rest.letters] == [letters[10].id]

    wish = PlanWish(leave_out=(Verdict.CREDENTIALS,), include=(Verdict.PROCESSED,))
    with pytest.raises(Conflict, match="10 letters, not 12"):
        await replay.agree(campaign.id, BY, wish, expect=12)
    await replay.agree(campaign.id, BY, wish, expect=10)
    await replay.resume(campaign.id, BY)
    sent = await replay.run(campaign.id)

    assert sent.counts == {Outcome.SENT: 10}
    ids = {one.message.id for one in await received(engine)}
    assert ids == {f"m-{n}" for n in range(1, 11)}


async def test_what_was_processed_since_it_was_judged_is_not_sent(
    store: LetterStore, engine: Engine, replay: Replay, clock: FakeClock
) -> None:
    letters = make_letters(4)
    campaign = await judged(replay, await frozen(store, replay, letters))
    clock.advance(FRESH.total_seconds() + 1)
    await processed(engine, letters[2])
    await replay.agree(campaign.id, BY, NO_WISH, expect=4)
    await replay.resume(campaign.id, BY)

    sent = await replay.run(campaign.id)

    assert {one.message.id for one in await received(engine)} == {"m-1", "m-2", "m-4"}
    assert sent.plan is not None
    assert sent.plan.verdicts == {Verdict.READY: 3, Verdict.PROCESSED: 1}


async def test_a_verdict_that_nobody_has_seen_is_not_agreed_to(
    store: LetterStore, engine: Engine, replay: Replay, clock: FakeClock
) -> None:
    soon = clock.now() + timedelta(minutes=3)
    letters = [*make_letters(2), make_letter(7, expires_at=soon)]
    campaign = await judged(replay, await frozen(store, replay, letters))
    clock.advance(FRESH.total_seconds() + 1)  # it expires: that would need a confirmation
    await replay.agree(campaign.id, BY, NO_WISH)
    await replay.resume(campaign.id, BY)

    await replay.run(campaign.id)

    assert {one.message.id for one in await received(engine)} == {"m-1", "m-2"}


async def test_a_limit_counts_the_letters_that_are_sent(
    store: LetterStore, engine: Engine, replay: Replay
) -> None:
    care = Care(skip=(Verdict.CREDENTIALS,))
    campaign = await frozen(store, replay, mixed(), care=care, limit=4)
    campaign = await judged(replay, campaign)
    assert campaign.plan is not None
    assert (campaign.plan.judged, campaign.plan.more) == (7, True)
    await replay.agree(campaign.id, BY, NO_WISH, expect=4)
    await replay.resume(campaign.id, BY)

    sent = await replay.run(campaign.id)

    assert sent.counts == {Outcome.SENT: 4}
    assert {one.message.id for one in await received(engine)} == {"m-7", "m-8", "m-9", "m-10"}


async def test_cancelling_ends_the_judging(store: LetterStore, replay: Replay) -> None:
    campaign = await frozen(store, replay, make_letters(SLICE + 1))
    await replay.judge_some(campaign.id)

    await replay.cancel(campaign.id, BY)

    assert not await replay.judge_some(campaign.id)
    found = await replay.status(campaign.id)
    assert found.state is CampaignState.CANCELLED
    assert found.plan is not None
    assert found.plan.judged == SLICE


async def test_two_processes_never_count_a_slice_twice(store: LetterStore, replay: Replay) -> None:
    campaign = await frozen(store, replay, make_letters(SLICE + 5))

    await asyncio.gather(*(judged(replay, campaign) for _ in range(3)))

    plan = (await replay.status(campaign.id)).plan
    assert plan is not None
    assert (plan.judged, plan.verdicts) == (SLICE + 5, {Verdict.READY: SLICE + 5})


class Killed(Exception):
    """The process is gone."""


class DyingStore:
    """A store whose caller dies at the n-th change of a plan, before or after it."""

    def __init__(self, real: LetterStore, calls: int, *, after: bool) -> None:
        self._real = real
        self._left = calls
        self._after = after

    def __getattr__(self, name: str) -> object:
        real = getattr(self._real, name)
        if name != "change_plan":
            return real

        async def dying(*args: object) -> object:
            self._left -= 1
            if self._left > 0:
                return await real(*args)
            if self._after:
                await real(*args)
            raise Killed

        return dying


@pytest.mark.parametrize("calls", [1, 2, 3, 4])  # judged twice, agreed to, filled
@pytest.mark.parametrize("after", [False, True])
async def test_a_plan_killed_anywhere_goes_on_and_sends_each_letter_once(  # noqa: PLR0917 -- fixtures
    replay: Replay,
    engine: Engine,
    store: LetterStore,
    clock: FakeClock,
    dice: SeededDice,
    calls: int,
    after: bool,
) -> None:
    size = SLICE + 3
    campaign = await frozen(store, replay, make_letters(size))
    dying_store = DyingStore(store, calls, after=after)
    dying = Replay(dying_store, engine.broker, clock, dice)  # type: ignore[arg-type]

    async def start(replay: Replay) -> None:
        now = await judged(replay, campaign)
        if now.state is CampaignState.PLANNED:
            await replay.agree(campaign.id, BY, NO_WISH, expect=size)
            await replay.resume(campaign.id, BY)
        await replay.run(campaign.id)

    with pytest.raises(Killed):
        await start(dying)
    await start(replay)

    ids = [one.message.id for one in await received(engine)]
    assert len(ids) == len(set(ids)) == size
    assert (await replay.status(campaign.id)).counts == {Outcome.SENT: size}


async def test_a_server_judges_plans_that_others_left_behind(
    engine: Engine, store: LetterStore, replay: Replay
) -> None:
    campaign = await frozen(store, replay, make_letters(SLICE + 1))
    await replay.judge_some(campaign.id)  # and the process that did is gone
    sender = ReplaySender(
        replay, engine.ledger, "a", clock=SystemClock(), observe=lambda event: None
    )

    await sender.adopt_plans()

    async def is_judged() -> bool:
        plan = (await replay.status(campaign.id)).plan
        return plan is not None and plan.is_judged

    await eventually(is_judged)
    await sender.close()


async def test_two_servers_judge_a_plan_together_and_count_each_letter_once(
    engine: Engine, store: LetterStore, replay: Replay
) -> None:
    campaign = await frozen(store, replay, make_letters(5 * SLICE))
    servers = [
        ReplaySender(replay, engine.ledger, name, clock=SystemClock(), observe=lambda event: None)
        for name in ("a", "b")
    ]

    await asyncio.gather(*(one.judge(campaign.id) for one in servers))
    await asyncio.gather(*(one.adopt_plans() for one in servers))

    async def is_judged() -> bool:
        plan = (await replay.status(campaign.id)).plan
        return plan is not None and plan.is_judged

    await eventually(is_judged)
    plan = (await replay.status(campaign.id)).plan
    assert plan is not None
    assert (plan.judged, plan.verdicts) == (5 * SLICE, {Verdict.READY: 5 * SLICE})
    for one in servers:
        await one.close()


async def test_a_plan_goes_on_when_its_server_is_started_again(
    engine: Engine, store: LetterStore, replay: Replay
) -> None:
    campaign = await frozen(store, replay, make_letters(4 * SLICE))
    first = ReplaySender(
        replay, engine.ledger, "a", clock=SystemClock(), observe=lambda event: None
    )
    await first.judge(campaign.id)
    await first.close()  # in the middle of it, or before it began
    second = ReplaySender(
        replay, engine.ledger, "a", clock=SystemClock(), observe=lambda event: None
    )

    await second.adopt_plans()

    async def is_judged() -> bool:
        plan = (await replay.status(campaign.id)).plan
        return plan is not None and plan.is_judged

    await eventually(is_judged)
    found = await replay.status(campaign.id)
    assert found.plan is not None
    assert found.plan.verdicts == {Verdict.READY: 4 * SLICE}
    await second.close()
