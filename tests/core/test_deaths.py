"""Deaths over time: counters, how many there may be, and what is told of them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.deaths import (
    COUNTERS_PER_STEP,
    DAY,
    FINE,
    GROUPS_PER_STEP,
    HOUR,
    DeathCount,
    DeathFilter,
    DeathLimit,
    added_up,
    check_request,
    due_before,
    renamed,
    series,
    sparkline,
    step_for,
    told,
    uncounted,
)
from deadletter.core.errors import ConfigError
from deadletter.testing.fakes import START
from deadletter.testing.letters_bench import a_letter

_names = st.sampled_from([*"abcdefgh", "x" * 500])
_deaths = st.lists(
    st.builds(
        lambda minutes, source, group, version: (
            a_letter(
                at=START + timedelta(minutes=minutes),
                source=source,
                fingerprint=group,
                version=version,
            ).head
        ),
        st.integers(-60 * 24, 60 * 24),
        _names,
        st.text(max_size=3) | st.integers(0, 99).map(str),
        _names,
    ),
    max_size=60,
)


@given(_deaths)
def test_every_death_is_counted_once_in_its_step_and_mailbox(deaths: list) -> None:
    counters = DeathLimit(groups=3, counters=5).counted(deaths, START)

    assert sum(counters.values()) == len(deaths)
    for step, at, source in {key[:3] for key in counters}:
        there = [
            head
            for head in deaths
            if head.source == source and at <= head.dead_at.timestamp() < at + step
        ]
        assert sum(n for key, n in counters.items() if key[:3] == (step, at, source)) == len(there)


@given(_deaths)
def test_adding_up_loses_nothing(deaths: list) -> None:
    fine = DeathLimit().counted(deaths, START)
    hours = added_up(fine)
    days = added_up(hours)

    for step, counters in ((HOUR, hours), (DAY, days)):
        assert sum(counters.values()) == len(deaths)
        assert all(key[0] == step and key[1] % step == 0 for key in counters)
    by_day: dict[tuple[int, str], int] = {}
    for (_, at, source, *_), n in fine.items():
        place = at // DAY * DAY, source
        by_day[place] = by_day.get(place, 0) + n
    found: dict[tuple[int, str], int] = {}
    for (_, at, source, *_), n in days.items():
        found[at, source] = found.get((at, source), 0) + n
    assert found == by_day


def test_a_flood_of_groups_and_versions_needs_few_counters() -> None:
    flood = [a_letter(fingerprint=f"f-{n}", version=f"v-{n}").head for n in range(1_000)]
    limit = DeathLimit()

    some = limit.counted(flood[:500], START) | limit.counted(flood[500:], START)

    assert len(some) == COUNTERS_PER_STEP + 1
    assert sum(1 for key in some if key[3]) == GROUPS_PER_STEP
    assert limit.counted(flood[:1], START) == {
        (FINE, int(START.timestamp()), "orders", "f-0", "v-0"): 1
    }


def test_only_the_latest_steps_are_remembered() -> None:
    limit = DeathLimit()
    for n in range(1_000):
        limit.counted([a_letter(at=START + n * timedelta(hours=1)).head], START)

    assert len(limit._steps) <= 65


def test_old_deaths_are_counted_in_long_steps() -> None:
    ages = [timedelta(0), timedelta(days=5), timedelta(days=50)]
    heads = [a_letter(at=START - age).head for age in ages]

    assert [key[0] for key in DeathLimit().counted(heads, START)] == [FINE, HOUR, DAY]


def test_groups_with_most_deaths_keep_their_counters() -> None:
    counters = {
        (FINE, step * FINE, "orders", f"f-{n}", ""): n + 1
        for step in range(12)
        for n in range(GROUPS_PER_STEP + 5)
    }

    hours = added_up(counters)

    named = {key[3] for key in hours if key[3]}
    assert named == {f"f-{n}" for n in range(5, GROUPS_PER_STEP + 5)}
    assert hours[HOUR, 0, "orders", "", ""] == 12 * (1 + 2 + 3 + 4 + 5)


def test_only_whole_coarse_steps_are_due() -> None:
    due = due_before(datetime(2026, 11, 18, 10, 30, tzinfo=UTC))

    assert due == {
        FINE: int(datetime(2026, 11, 16, 9, tzinfo=UTC).timestamp()),
        HOUR: int(datetime(2026, 10, 17, tzinfo=UTC).timestamp()),
    }


def test_renamed_groups_are_counted_together() -> None:
    counters = {(FINE, 0, "orders", "f-1", ""): 2, (FINE, 0, "orders", "f-2", ""): 3}

    assert renamed(counters, {"f-1": "f-2"}) == {(FINE, 0, "orders", "f-2", ""): 5}


def _asked(since: timedelta, span: timedelta, step: timedelta) -> DeathFilter:
    return DeathFilter(since=START - since, until=START - since + span, step=step)


@pytest.mark.parametrize(
    ("since", "span", "step", "problem"),
    [
        (timedelta(days=1), timedelta(days=1), timedelta(minutes=5), None),
        (timedelta(days=1), timedelta(days=1), timedelta(minutes=7), "`step` must be"),
        (timedelta(days=1), timedelta(days=1), timedelta(milliseconds=300_100), "`step` must be"),
        (timedelta(days=1), timedelta(0), timedelta(hours=1), "`until` must be after `since`"),
        (timedelta(days=3), timedelta(days=1), timedelta(minutes=5), "use a step of 1h or 1d"),
        (timedelta(days=40), timedelta(days=1), timedelta(hours=1), "use a step of 1d"),
        (timedelta(days=4_000), timedelta(days=4_000), timedelta(days=1), "up to 2,000 steps"),
        (timedelta(days=1_000), timedelta(days=999), timedelta(days=1), None),
    ],
)
def test_charts_that_cannot_be_drawn_are_rejected(
    since: timedelta, span: timedelta, step: timedelta, problem: str | None
) -> None:
    request = _asked(since, span, step)
    if problem is None:
        check_request(request, START)
    else:
        with pytest.raises(ConfigError, match=problem):
            check_request(request, START)


@pytest.mark.parametrize(
    ("hours", "step"), [(1, FINE), (24, FINE), (47, HOUR), (30 * 24, HOUR), (60 * 24, DAY)]
)
def test_a_span_has_a_step_that_fits(hours: int, step: int) -> None:
    span = timedelta(hours=hours)
    found = step_for(span, span)

    assert found == timedelta(seconds=step)
    check_request(DeathFilter(since=START - span, until=START, step=found), START)


def test_series_have_zeros_and_end_with_the_others() -> None:
    counts = [
        DeathCount(START, "few", 1),
        DeathCount(START, "", 9),
        DeathCount(START + timedelta(minutes=10), "most", 4),
    ]
    request = DeathFilter(
        since=START, until=START + timedelta(minutes=15), step=timedelta(minutes=5)
    )

    found = series(counts, request)

    assert list(found.items()) == [("most", (0, 0, 4)), ("few", (1, 0, 0)), ("", (9, 0, 0))]


@pytest.mark.parametrize(
    ("numbers", "line", "text"),
    [
        ((), "", "none an hour"),
        ((0, 0), "▁▁", "none an hour"),
        ((0, 1, 8), "▁▂█", "0 to 8 an hour, now 8"),
        ((3, 1_200, 31), "▂█▂", "3 to 1,200 an hour, now 31"),
        ((5, 5), "██", "5 an hour, now 5"),
    ],
)
def test_numbers_become_a_line_and_a_sentence(
    numbers: tuple[int, ...], line: str, text: str
) -> None:
    assert sparkline(numbers) == line
    assert told(numbers) == text


def test_days_with_fewer_deaths_than_letters_are_reported() -> None:
    day = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp())
    needed = {(day, "orders"): 412, (day, "mails"): 3, (day - DAY, "mails"): 1}

    assert uncounted(
        {(day, "orders"): 400, (day, "mails"): 5, (day - DAY, "mails"): 1}, needed
    ) == ["400 deaths of orders are counted on 2026-11-18, but 412 letters died then"]
