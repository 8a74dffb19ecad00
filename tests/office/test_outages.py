"""Outages: what people are shown of windows, and the word to go on."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.brake import WindowState
from deadletter.core.errors import NotFound
from deadletter.office.doctor import Health, examine
from deadletter.office.mailboxes import list_outages, release_mailbox
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_filing import a_window
from office.making import BY

MINUTE = timedelta(minutes=1)


async def test_windows_of_one_cause_that_overlap_are_one_outage(
    store: LetterStore, clock: FakeClock
) -> None:
    now = clock.now()
    first = replace(a_window(1), opened_at=now - 9 * MINUTE, seen_at=now - 6 * MINUTE)
    first = replace(first, closed_at=now - 6 * MINUTE, ending="its worker stopped")
    second = replace(a_window(2), opened_at=now - 5 * MINUTE, seen_at=now)
    other = replace(second, id="w-3", cause="TypeError in shop.orders:charge")
    for window in (first, second, other):
        await store.save_window(window)

    one, two = await list_outages(store, clock)

    assert two.state is WindowState.OPEN
    assert (two.window.workers, two.window.held) == (2, 4)
    assert two.window.opened_at == first.opened_at
    assert one.window.cause == other.cause


async def test_windows_that_lie_apart_are_two_outages(store: LetterStore, clock: FakeClock) -> None:
    now = clock.now()
    old = replace(a_window(1), opened_at=now - 60 * MINUTE, seen_at=now - 59 * MINUTE)
    new = replace(a_window(2), opened_at=now - MINUTE, seen_at=now)
    for window in (old, new):
        await store.save_window(window)

    outages = await list_outages(store, clock)

    assert [one.state for one in outages] == [WindowState.OPEN, WindowState.SILENT]
    assert await list_outages(store, clock, only_open=True) == outages[:1]
    assert await list_outages(store, clock, only=("mails",)) == []


async def test_a_mailbox_that_is_not_held_back_is_not_released(store: LetterStore) -> None:
    with pytest.raises(NotFound, match="is not open"):
        await release_mailbox(store, "orders", BY)


async def test_a_mailbox_that_is_held_back_is_released(
    store: LetterStore, clock: FakeClock
) -> None:
    await store.save_window(replace(a_window(), seen_at=clock.now()))

    released = await release_mailbox(store, "orders", BY)

    assert released.windows == 1
    ((outage),) = await list_outages(store, clock)
    assert outage.window.release is not None
    assert outage.window.release.actor == BY.actor


async def test_the_doctor_names_what_is_held_back(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    checks = {one.name: one for one in await examine(engine, clock, None)}
    assert checks["brake"].health is Health.OK
    await store.save_window(replace(a_window(), seen_at=clock.now()))

    checks = {one.name: one for one in await examine(engine, clock, None)}

    assert checks["brake"].health is Health.WARN
    assert "orders is held back (systemic)" in checks["brake"].text
