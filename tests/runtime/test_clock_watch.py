"""Jumps of the clock are noticed; slow corrections are not called jumps."""

from datetime import timedelta

import pytest

from deadletter.runtime.sweep import ClockWatch
from deadletter.testing.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def noted(watch: ClockWatch) -> float:
    return watch.note(None, watch.began())


@pytest.mark.parametrize("jump", [7200.0, -7200.0, 400 * 86_400.0])
def test_a_jump_is_noticed_once(clock: FakeClock, jump: float) -> None:
    watch = ClockWatch(clock)
    noted(watch)
    clock.advance(1)
    clock.step(jump)

    assert noted(watch) == pytest.approx(jump, abs=2)
    clock.advance(1)
    assert noted(watch) == 0


def test_a_clock_that_stands_still_is_noticed(clock: FakeClock) -> None:
    watch = ClockWatch(clock)
    noted(watch)
    jumps = []
    for _ in range(10):
        clock.advance(1)
        clock.step(-1)
        jumps.append(noted(watch))

    assert sum(jumps) < -5


def test_a_clock_that_is_corrected_slowly_has_not_jumped(clock: FakeClock) -> None:
    watch = ClockWatch(clock)
    for _ in range(5_000):
        clock.advance(1)
        clock.step(0.0005)
        assert noted(watch) == 0


def test_a_store_that_answers_late_has_not_jumped(clock: FakeClock) -> None:
    watch = ClockWatch(clock)
    watch.note(clock.now(), watch.began())
    began = watch.began()
    read = clock.now()
    clock.advance(30)  # until the answer was here

    assert watch.note(read, began) == 0


def test_the_clock_of_the_store_counts_where_it_has_one(clock: FakeClock) -> None:
    watch = ClockWatch(clock)
    watch.note(clock.now(), watch.began())
    clock.advance(1)

    jump = watch.note(clock.now() + timedelta(hours=2), watch.began())

    assert jump == pytest.approx(7200, abs=2)


def test_a_jump_is_mentioned_for_a_while(clock: FakeClock) -> None:
    watch = ClockWatch(clock)
    noted(watch)
    assert watch.sentence() is None
    clock.step(7200)
    noted(watch)

    assert watch.sentence() == "the clock jumped by +2h0m0s, to 2030-01-01 02:00:00 UTC"
    clock.advance(1_000)
    assert watch.sentence() is None
