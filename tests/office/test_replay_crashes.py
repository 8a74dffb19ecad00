import asyncio

import pytest

from deadletter.core.campaign import CampaignState, Outcome, unsent
from deadletter.core.errors import Conflict
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice
from office.making import BY, make_letter, make_letters
from office.sending import confirm, received


async def test_two_replays_of_the_same_letters_send_each_once(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep(make_letters(300))
    campaigns = [await replay.start("*", BY) for _ in range(5)]

    await asyncio.gather(*(replay.run(one.id) for one in campaigns))

    ids = [one.message.id for one in await received(engine)]
    assert len(ids) == len(set(ids)) == 300
    counts = [(await replay.status(one.id)).counts for one in campaigns]
    assert sum(one.get(Outcome.SENT, 0) for one in counts) == 300
    assert sum(one.get(Outcome.SKIPPED, 0) for one in counts) == 1_200


class Killed(Exception):
    """The process is gone."""


class Mortal:
    """A broker or store whose caller dies at the n-th call of a verb."""

    def __init__(self, real: object, verb: str, *, after: bool) -> None:
        self._real = real
        self._verb = verb
        self._after = after

    def __getattr__(self, name: str) -> object:
        real = getattr(self._real, name)
        if name == "sink":
            return lambda mailbox: Mortal(real(mailbox), self._verb, after=self._after)
        if name != self._verb:
            return real

        async def dying(*args: object, **kwargs: object) -> object:
            if self._after:
                await real(*args, **kwargs)
            raise Killed

        return dying


@pytest.mark.parametrize("verb", ["take_replay", "send", "sent_replay"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_replay_killed_anywhere_goes_on_with_the_same_generation(  # noqa: PLR0917 -- fixtures
    replay: Replay,
    engine: Engine,
    store: LetterStore,
    clock: FakeClock,
    dice: SeededDice,
    verb: str,
    after: bool,
) -> None:
    await store.keep(make_letters(70))
    campaign = await replay.start("*", BY)
    mortal_broker = Mortal(engine.broker, verb, after=after)
    mortal_store = Mortal(store, verb, after=after)
    dying = Replay(mortal_store, mortal_broker, clock, dice)  # type: ignore[arg-type]
    with pytest.raises(Killed):
        await dying.run(campaign.id)

    await replay.resume(campaign.id, BY, take_over=True)
    await replay.run(campaign.id)

    deliveries = await received(engine)
    copies = {one.message.dedup_id for one in deliveries}
    assert copies == {f"m-{n}~1" for n in range(1, 71)}
    await confirm(store, deliveries)
    assert (await replay.status(campaign.id)).counts == {Outcome.CONFIRMED: 70}


async def test_a_stopped_replay_is_paused_and_resumed(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep(make_letters(120))
    campaign = await replay.start("*", BY)
    stop = asyncio.Event()

    campaign = await replay.run(campaign.id, stop=stop, on_progress=lambda _: stop.set())
    assert 0 < unsent(campaign) < 120
    campaign = await replay.pause(campaign.id, BY)
    assert campaign.state is CampaignState.PAUSED
    assert await replay.run(campaign.id) == campaign  # sends nothing
    await replay.resume(campaign.id, BY)
    campaign = await replay.run(campaign.id)

    assert campaign.counts == {Outcome.SENT: 120}
    assert len(await received(engine)) == 120


async def test_a_running_replay_is_not_resumed_beside_itself(
    replay: Replay, store: LetterStore
) -> None:
    await store.keep([make_letter()])
    campaign = await replay.start("*", BY)

    with pytest.raises(Conflict, match="take-over"):
        await replay.resume(campaign.id, BY)
    await replay.run(campaign.id)
    with pytest.raises(Conflict, match="sent already"):
        await replay.resume(campaign.id, BY)
