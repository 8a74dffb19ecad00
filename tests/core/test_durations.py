"""Lengths of time as Go writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.text import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("200ms", 0.2),
        ("1h0m0.25s", 3600.25),
        ("15us", 15e-6),
        ("15µs", 15e-6),
        ("15μs", 15e-6),
        ("7ns", 7e-9),
        ("0", 0.0),
        ("-2m", -120.0),
        ("+2m", 120.0),
        ("1m1m", 120.0),  # as Go has it
    ],
)
def test_durations_that_go_accepts_are_accepted(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1d", "1 s", "1s ", "1,5s", "1e3s", "--1s", "٣s", ".s", "9" * 200 + "s"]
)
def test_durations_that_go_rejects_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


def test_there_is_a_longest_one() -> None:
    assert parse_duration("2562047h") == 2562047 * 3600
    with pytest.raises(ValueError, match="duration too long"):
        parse_duration("2562048h")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (30.0, "30s"),
        (60.0, "1m0s"),
        (5400.0, "1h30m0s"),
        (3600.25, "1h0m0.25s"),
        (0.2, "200ms"),
        (0.0015, "1.5ms"),
        (15e-6, "15µs"),
        (7e-9, "7ns"),
        (-90.5, "-1m30.5s"),
        (1e-12, "0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(-(2**50), 2**50))
def test_written_durations_can_be_read(nanos: int) -> None:
    seconds = nanos / 1e9

    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-12, abs=1e-9)
