"""A loop's sign of life."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from deadletter.runtime.deliveries import Heartbeat
from deadletter.testing.fakes import FakeClock


def test_elapsed_counts_from_the_last_beat() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)
    clock.advance(5.0)
    heartbeat.beat()

    clock.advance(2.0)

    assert heartbeat.elapsed() == 2.0


def test_a_heart_that_never_beat_counts_from_its_beginning() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)

    clock.advance(3.0)

    assert heartbeat.elapsed() == 3.0


def test_the_wall_clock_does_not_matter() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)

    clock.step(86_400.0)

    assert heartbeat.elapsed() == 0.0


def test_callbacks_are_called_in_order_and_one_that_fails_stops_none() -> None:
    heartbeat = Heartbeat(FakeClock())
    called: list[str] = []

    def fail() -> None:
        called.append("fails")
        raise RuntimeError("mine alone")

    heartbeat.add_callback(lambda: called.append("first"))
    heartbeat.add_callback(fail)
    heartbeat.add_callback(lambda: called.append("last"))

    heartbeat.beat()

    assert called == ["first", "fails", "last"]


def test_a_removed_callback_is_called_no_longer() -> None:
    heartbeat = Heartbeat(FakeClock())
    called: list[str] = []

    def callback() -> None:
        called.append("called")

    heartbeat.add_callback(callback)
    heartbeat.beat()

    heartbeat.remove_callback(callback)
    heartbeat.beat()

    assert called == ["called"]
    with pytest.raises(ValueError, match="not in list"):
        heartbeat.remove_callback(callback)


def test_a_callback_may_ask_and_beat_and_remove_itself() -> None:
    clock = FakeClock()
    heartbeat = Heartbeat(clock)
    seen: list[float] = []

    def callback() -> None:
        heartbeat.remove_callback(callback)
        seen.append(heartbeat.elapsed())
        heartbeat.beat()

    heartbeat.add_callback(callback)
    clock.advance(1.0)
    heartbeat.beat()

    assert seen == [0.0]


def test_any_thread_may_beat() -> None:
    heartbeat = Heartbeat(FakeClock())
    called: list[int] = []
    heartbeat.add_callback(lambda: called.append(1))

    with ThreadPoolExecutor(4) as threads:
        for _ in range(400):
            threads.submit(heartbeat.beat)

    assert len(called) == 400
