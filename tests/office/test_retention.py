from datetime import timedelta

import pytest

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import OPEN, State
from deadletter.office.retention import Retention
from deadletter.ports import Engine, LedgerKey, LedgerState, LetterStore
from deadletter.testing.fakes import FakeClock
from office.making import BY, make_letter, make_letters

FINISHED = (State.CLOSED, State.REPLAYED, State.DISCARDED)
OLD = timedelta(days=91)


async def test_only_finished_letters_past_their_time_go(
    store: LetterStore, clock: FakeClock
) -> None:
    old = [make_letter(number, state=state, died=OLD) for number, state in enumerate(State)]
    young = make_letters(20, source="young", state=State.CLOSED)
    await store.keep([*old, *young])
    retention = Retention(store, clock)

    assert await retention.due() == 3
    swept = await retention.run(BY)

    assert swept.letters == 3
    left = {one.head.state for one in await store.get([one.id for one in old])}
    assert left == set(State) - set(FINISHED)
    assert left >= OPEN


async def test_a_clock_that_jumped_deletes_nothing(store: LetterStore, clock: FakeClock) -> None:
    await store.keep([*make_letters(15, state=State.CLOSED), make_letter(99)])
    clock.step(400 * 86_400)

    with pytest.raises(Conflict, match="15 of 16"):
        await Retention(store, clock).run(BY)

    assert sum((await store.counts())["orders"].values()) == 16


async def test_force_lets_them_go_but_never_the_unreviewed(
    store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([*make_letters(15, state=State.CLOSED), make_letter(99)])
    clock.step(400 * 86_400)

    swept = await Retention(store, clock).run(BY, force=True)

    assert swept.letters == 15
    assert (await store.counts())["orders"].get(State.PENDING) == 1


async def test_the_unreviewed_expire_where_that_is_asked_for(
    store: LetterStore, clock: FakeClock
) -> None:
    old = [make_letter(number, state=state, died=OLD) for number, state in enumerate(State)]
    young = make_letters(20, source="young")
    await store.keep([*old, *young])
    retention = Retention(store, clock, unreviewed=timedelta(days=90))

    assert await retention.due() == 6
    swept = await retention.run(BY)

    assert swept.letters == 6
    left = [one.head.state for one in await store.get([one.id for one in old])]
    assert left == [State.REPLAYING]  # its outcome is still to come
    expired = [one for one in await store.audit() if one.action == "expire"]
    assert {one.detail for one in expired} >= {"was pending", "was reviewed", "was quarantined"}
    assert await store.verify() == []


async def test_deletions_by_retention_are_audited(store: LetterStore, clock: FakeClock) -> None:
    letter = make_letter(state=State.CLOSED, died=OLD)
    await store.keep([letter])

    await Retention(store, clock).run(BY)

    entry = (await store.audit())[-1]
    assert (entry.actor, entry.reason) == ("anna", "because")


def test_the_unreviewed_cannot_be_given_a_time(store: LetterStore, clock: FakeClock) -> None:
    with pytest.raises(ConfigError, match="never expire"):
        Retention(store, clock, keep={State.PENDING: timedelta(days=1)})


async def test_finished_ledger_keys_go_when_their_time_is_over(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    assert engine.ledger is not None
    claims = await engine.ledger.begin([LedgerKey("orders", "k")], lease=60)
    await engine.ledger.finish([(claims[0], LedgerState.PROCESSED)], ttl=100)
    clock.advance(101)

    swept = await Retention(store, clock, ledger=engine.ledger).run(BY)

    assert swept.ledger == 1


async def test_ledger_keys_go_whose_message_is_gone_for_long(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    assert engine.ledger is not None
    retention = Retention(store, clock, ledger=engine.ledger)
    await engine.ledger.begin([LedgerKey("orders", "k")], lease=60)

    clock.advance(30 * 86_400)
    too_early = await retention.run(BY)
    clock.advance(60)
    in_time = await retention.run(BY)

    assert (too_early.ledger, in_time.ledger) == (0, 1)
