"""F24: ids are distinct and sort by their making, whatever the clock does."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.ids import uuid7
from deadletter.ports import Clock, Dice
from deadletter.system import SystemClock, SystemDice


def test_the_system_clock_and_dice_implement_the_ports() -> None:
    clock: Clock = SystemClock()
    dice: Dice = SystemDice()

    assert clock.now().tzinfo is UTC
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.monotonic() <= clock.monotonic()
    assert UUID(dice.new_id()).version == 7


def test_draws_are_shares_and_not_all_the_same() -> None:
    dice = SystemDice()

    draws = [dice.draw() for _ in range(1000)]

    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) > 990


@given(times=st.lists(st.integers(0, 2**48 - 2), min_size=1, max_size=50))
def test_ids_sort_by_their_making_however_the_clock_jumps(times: list[int]) -> None:
    pending = list(times)
    dice = SystemDice(lambda: pending.pop(0))

    ids = [dice.new_id() for _ in times]

    assert ids == sorted(set(ids))
    assert all(UUID(id_).version == 7 for id_ in ids)


def test_within_one_frozen_millisecond_ids_still_sort() -> None:
    dice = SystemDice(lambda: 1_700_000_000_000)

    ids = [dice.new_id(), *dice.new_ids(50_000), dice.new_id()]

    assert len(ids) == 50_002
    assert ids == sorted(set(ids))
    assert len({id_[:13] for id_ in ids}) == 1  # all of that millisecond


def test_when_a_millisecond_is_full_the_next_one_begins() -> None:
    dice = SystemDice(lambda: 5)
    dice.new_id()
    dice._chances._tail = 2**74 - 1  # the last id there is in it

    after = dice.new_id()

    assert uuid7(5, 2**74 - 1) < after
    assert after[:13] == uuid7(6, 0)[:13]


@pytest.fixture
def restless_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless_threads")
def test_threads_get_different_ids_each_in_order() -> None:
    dice = SystemDice(lambda: 42)

    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: [dice.new_id() for _ in range(15_000)], range(8))
        batches = list(made)

    assert len({id_ for batch in batches for id_ in batch}) == 120_000
    assert all(batch == sorted(batch) for batch in batches)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_rolls_its_own_dice() -> None:
    dice = SystemDice(lambda: 7)
    before = [dice.new_id(), str(dice.draw())]
    reading, writing = os.pipe()

    child = os.fork()
    if child == 0:  # pragma: no cover -- not this process
        told = [*(dice.new_id() for _ in range(1000)), str(dice.draw())]
        os.write(writing, " ".join(told).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = pipe.read().split()
    os.waitpid(child, 0)
    ours = [*(dice.new_id() for _ in range(1000)), str(dice.draw())]

    assert len(theirs) == 1001
    assert not set(theirs) & {*ours, *before}
