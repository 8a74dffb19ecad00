"""How groups stand: what may be said, when a snooze ends, what a regression is."""

from datetime import UTC, datetime, timedelta
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.core.errors import ConfigError
from deadletter.core.grouping import as_of, check_standing, regressed, regresses, said
from deadletter.core.letter import GroupStatus, LetterHead, Standing

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
RESOLVED = Standing(status=GroupStatus.RESOLVED, since=NOW, owner="bo", note="fixed")


def death(version: str = "", at: datetime = LATER) -> LetterHead:
    return LetterHead(
        id="l", source="orders", message_id="m", version=version, first_failed_at=at, dead_at=at
    )


@pytest.mark.parametrize("status", sorted(set(GroupStatus) - {GroupStatus.RESOLVED}))
def test_only_what_was_resolved_regresses(status: GroupStatus) -> None:
    assert not regresses(Standing(status=status, since=NOW), [death()], {})


def test_only_deaths_after_it_was_said_show_something() -> None:
    before = [death(at=NOW), death(at=NOW - timedelta(days=1))]

    assert not regresses(RESOLVED, before, {})
    assert regresses(RESOLVED, [*before, death()], {})


@pytest.mark.parametrize(
    ("version", "fixed_in", "expected"),
    [
        ("1.7", "1.8", False),
        ("1.7.12", "1.8", False),
        ("1.9", "1.10", False),
        ("v1.7", "1.8", False),
        ("1.8", "1.8", True),
        ("1.8.1", "1.8", True),
        ("2", "1.8", True),
        ("1.8rc1", "1.8", False),
        ("1.8", "1.8.0", True),
        ("2026-10-31", "2026-11-01", False),
        ("2026-11-02", "2026-11-01", True),
        ("7c2e1d9", "8a0b", True),
        ("1.7", "", True),
        ("", "1.8", True),  # nobody can tell
        ("f3a9c1", "1.8", True),
        ("1.7", "next", True),
        ("٣.1", "9", True),
    ],
)
def test_versions_before_the_fix_show_nothing(version: str, fixed_in: str, expected: bool) -> None:
    standing = replace(RESOLVED, version=fixed_in)

    assert regresses(standing, [death(version)], {}) is expected


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_may_be_a_version(version: str, fixed_in: str) -> None:
    regresses(replace(RESOLVED, version=fixed_in), [death(version)], {})


@pytest.mark.parametrize("piece", ["1.", "1", ".", "v"])
def test_a_hostile_version_takes_no_longer(piece: str) -> None:
    standing = replace(RESOLVED, version="1.8")
    started = process_time()

    regresses(standing, [death(piece * 100_000)], {})

    assert process_time() - started < 0.2


def test_a_regressed_group_keeps_its_assignee() -> None:
    after = regressed(replace(RESOLVED, version="1.8"), LATER)

    assert after.status is GroupStatus.REGRESSED
    assert (after.owner, after.note, after.version) == ("bo", "fixed", "1.8")
    assert after.since == LATER


def test_a_snooze_is_over_when_its_time_has_come() -> None:
    snoozed = Standing(status=GroupStatus.SNOOZED, since=NOW, until=LATER)

    assert as_of(snoozed, NOW) == snoozed
    assert as_of(snoozed, LATER) == Standing(status=GroupStatus.ONGOING, since=NOW)


@pytest.mark.parametrize(
    ("standing", "says"),
    [
        (Standing(), "follows from events"),
        (Standing(status=GroupStatus.REGRESSED), "follows from events"),
        (Standing(status=GroupStatus.SNOOZED), "needs `until`"),
        (Standing(status=GroupStatus.MUTED, until=LATER), "needs `until`"),
        (replace(RESOLVED, note="x" * 4_001), "up to 4,000 are allowed"),
        (replace(RESOLVED, owner="x" * 201), "200 characters"),
        (replace(RESOLVED, version="x" * 201), "200 characters"),
    ],
)
def test_invalid_standings_are_rejected(standing: Standing, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_standing(standing)


def test_a_change_is_told_in_words() -> None:
    resolved = Standing(status=GroupStatus.RESOLVED, owner="bo", version="1.8")
    snoozed = Standing(status=GroupStatus.SNOOZED, owner="bo", until=LATER)

    assert said(Standing(), resolved) == "new to resolved, in 1.8, owner bo"
    assert said(resolved, snoozed) == "resolved to snoozed, until 2030-01-01 13:00 UTC"
    assert said(resolved, replace(resolved, owner=None)).endswith("owner nobody")
