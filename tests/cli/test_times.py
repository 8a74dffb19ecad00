import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from deadletter.cli.ui import ago, local, many, size, span, time_zone

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "now"),
        (5, "5 s ago"),
        (200, "3 min ago"),
        (7200, "2 h ago"),
        (200_000, "2 d ago"),
        (-90, "in 1 min"),
    ],
)
def test_how_long_ago_is_said_in_one_unit(seconds: float, said: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_short_spans_are_milliseconds() -> None:
    assert span(0.25) == "250 ms"


def test_counts_have_their_noun() -> None:
    assert many(1, "letter") == "1 letter"
    assert many(1200, "letter") == "1,200 letters"


def test_sizes_are_readable() -> None:
    assert size(123) == "123 bytes"
    assert size(123_456) == "123 kB"
    assert size(123_456_789) == "123 MB"


def test_times_are_those_of_the_reader(tokyo: None) -> None:
    assert local(NOW) == "2030-01-01 21:00:00"
    assert time_zone(NOW) == "UTC+09:00"
