"""Offices on one broker with different keys, as `dlq doctor` sees it."""

from datetime import timedelta

from deadletter.core.campaign import Outcome
from deadletter.core.letter import By
from deadletter.core.signing import Keys
from deadletter.office.doctor import Check, Health, examine
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LetterStore, ReplaySettled
from deadletter.testing.fakes import FakeClock, SeededDice
from office.making import make_letter

KEYS = Keys(b"n" * 32, b"o" * 32)


async def checked(engine: Engine, clock: FakeClock) -> Check:
    checks = {one.name: one for one in await examine(engine, clock, None, KEYS)}
    return checks["signing keys"]


async def replayed(engine: Engine, store: LetterStore, clock: FakeClock) -> str:
    """Send a letter back; its id."""
    letter = make_letter()
    await store.keep([letter])
    replay = Replay(store, engine.broker, clock, SeededDice())
    campaign = await replay.start("is:pending", By("anna"))
    await replay.run(campaign.id)
    return letter.id


async def test_the_keys_are_named_so_that_others_can_be_compared(
    engine: Engine, clock: FakeClock
) -> None:
    check = await checked(engine, clock)

    first, second = KEYS.ids
    assert check.health is Health.OK
    assert f"signed with key {first}; verified with {second}" in check.text
    assert "need the same `signing_keys`" in check.text


async def test_copies_without_an_outcome_hint_at_keys_that_are_not_shared(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    letter = await replayed(engine, store, clock)
    before = await checked(engine, clock)

    clock.advance(timedelta(hours=25).total_seconds())
    after = await checked(engine, clock)
    await store.settle_replays([ReplaySettled(letter, 1, Outcome.CONFIRMED)])

    assert before.health is Health.OK
    assert after.health is Health.WARN
    assert "1 replayed copy has had no outcome for a day" in after.text
    assert "set the same `signing_keys`" in after.text
    assert (await checked(engine, clock)).health is Health.OK


async def test_an_engine_that_owns_its_fields_has_nothing_to_sign(
    engine: Engine, clock: FakeClock
) -> None:
    names = {check.name for check in await examine(engine, clock, None)}

    assert "signing keys" not in names
