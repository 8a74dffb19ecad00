"""The order of application versions: known, or not known, but never guessed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.query.versions import compare

MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
SEEN = {
    ("orders", "8a0b"): MONDAY,
    ("orders", "7c2e1d9"): MONDAY + timedelta(days=1),
    ("orders", "1.8"): MONDAY + timedelta(days=2),
    ("refunds", "7c2e1d9"): MONDAY - timedelta(days=1),
    ("refunds", "8a0b"): MONDAY,
}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.9", "1.10"),
        ("1.8.0-beta.2", "1.8"),
        ("v1.7", "1.8.0"),
        ("2026-11-01", "2026-11-02"),
        ("2026.9.30", "20261001"),
        ("20261101", "2026-11-01T12:30"),
        ("8a0b", "7c2e1d9"),  # seen first
        ("7c2e1d9", "1.8"),
    ],
)
def test_one_version_is_older_than_the_other(older: str, newer: str) -> None:
    assert compare(older, newer, "orders", SEEN) == -1
    assert compare(newer, older, "orders", SEEN) == 1


@pytest.mark.parametrize(
    ("one", "same"), [("1.8", "1.8.0"), ("v1.8", "1.8"), ("2026-1-2", "20260102")]
)
def test_one_version_may_be_written_in_several_ways(one: str, same: str) -> None:
    assert compare(one, same, "orders", {}) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("7c2e1d9", "5555555"),  # digits alone, yet as good a hash
        ("7c21119", "7c21118"),  # not release candidates of 7
        ("1.8", ""),
        ("1.8", "next"),
        ("1.8", "2026-11-01"),
        ("2026-13-01", "2026-14-01"),
    ],
)
def test_an_order_that_is_not_known_is_not_guessed(one: str, other: str) -> None:
    assert compare(one, other, "orders", {}) is None
    assert compare(other, one, "orders", {}) is None


def test_each_mailbox_has_seen_versions_at_its_own_times() -> None:
    assert compare("7c2e1d9", "8a0b", "orders", SEEN) == 1
    assert compare("7c2e1d9", "8a0b", "refunds", SEEN) == -1


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_two_texts_are_compared_the_same_both_ways(one: str, other: str) -> None:
    order = compare(one, other, "orders", {})

    assert compare(other, one, "orders", {}) == (None if order is None else -order)
