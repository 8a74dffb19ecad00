"""When a child that died is replaced, as a decision."""

import pytest

from deadletter.runtime.supervisor import PACE, Life, replace_after


def delays(*lives: Life) -> list[float]:
    """How long each of these is waited for, one child after the other."""
    found, failures = [], 0
    for life in lives:
        replacement = replace_after(life, failures)
        failures = replacement.failures
        found.append(replacement.delay)
    return found


def in_vain(seconds: float = 0.3) -> Life:
    return Life(seconds, took_messages=False)


def at_work(seconds: float = 5.0) -> Life:
    return Life(seconds, took_messages=True)


def test_the_wait_doubles_up_to_half_a_minute_for_those_that_take_no_message() -> None:
    assert delays(*[in_vain()] * 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_child_that_died_at_work_is_always_replaced_at_once() -> None:
    assert delays(*[at_work()] * 100) == [0.0] * 100


def test_work_ends_a_row_of_failures() -> None:
    lives = [in_vain(), in_vain(), in_vain(), at_work(), in_vain()]

    assert delays(*lives) == [0.5, 1, 2, 0, 0.5]


def test_a_child_that_ran_for_a_minute_has_got_over_its_troubles() -> None:
    assert delays(in_vain(), in_vain(), in_vain(60.0), in_vain()) == [0.5, 1, 0.5, 1]


@pytest.mark.parametrize("seconds", [0.0, 0.4, 1.0, 3.0])
def test_starts_are_a_second_apart_even_so(seconds: float) -> None:
    (delay,) = delays(at_work(seconds))

    assert seconds + delay == max(PACE, seconds)
