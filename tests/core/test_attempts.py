from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.attempts import KEPT, Attempt, append, attempt_of, join, last_number, read
from deadletter.core.failure import Failure, Trouble

START = datetime(2024, 5, 1, tzinfo=UTC)
FIRST = 5
lengths = st.integers(0, 70)


def attempts(count: int, generation: int = 0) -> list[Attempt]:
    return [
        Attempt(
            number=number,
            at=START + timedelta(days=generation, minutes=number),
            text=f'failed with "outcome":"cut" in generation {generation}',
            generation=generation,
        )
        for number in range(1, count + 1)
    ]


def story(told: list[Attempt]) -> str:
    history = ""
    for attempt in told:
        history = append(history, attempt)
    return history


def raw(told: list[Attempt]) -> str:
    """A story whose lines were appended by a driver that counts nothing."""
    return "\n".join(msgspec.json.encode(attempt).decode() for attempt in told)


def kept_of(history: str) -> list[Attempt]:
    return [attempt for attempt in read(history) if attempt.outcome != "cut"]


def missing_of(history: str) -> int:
    marks = [attempt for attempt in read(history) if attempt.outcome == "cut"]
    assert len(marks) <= 1
    return sum(mark.number for mark in marks)


def check_tells(history: str, told: list[Attempt]) -> None:
    """The story is this one: bounded, its ends kept, what is missing counted."""
    kept, missing = kept_of(history), missing_of(history)
    assert len(read(history)) <= KEPT
    assert len(kept) + missing == len(told)
    if not missing:
        assert kept == told
        return
    assert read(history)[FIRST].outcome == "cut"
    assert len(read(history)) == KEPT
    assert kept[:FIRST] == told[:FIRST]
    assert kept[FIRST:] == told[FIRST - len(kept) :]


@given(lengths)
def test_a_story_keeps_its_ends_and_counts_what_is_missing(count: int) -> None:
    told = attempts(count)

    check_tells(story(told), told)


@given(st.integers(1, 70), st.integers(1, 40))
def test_a_story_that_outgrew_its_bounds_is_cut_right(raw_: int, more: int) -> None:
    told = attempts(raw_ + more)
    history = raw(told[:raw_])

    for attempt in told[raw_:]:
        history = append(history, attempt)

    if len(told) > KEPT:
        check_tells(history, told)


def test_a_story_is_not_cut_before_it_must() -> None:
    assert missing_of(story(attempts(KEPT))) == 0
    assert missing_of(story(attempts(KEPT + 1))) == 2  # the mark takes a line itself


def test_the_mark_says_what_is_missing_and_until_when() -> None:
    told = attempts(30)

    mark = read(story(told))[FIRST]

    assert mark.text == "11 attempts left out here"
    assert mark.at == told[15].at


@given(lengths, lengths)
def test_one_story_after_another_tells_both(one: int, two: int) -> None:
    first, second = attempts(one), attempts(two, generation=1)

    check_tells(join(story(first), story(second)), first + second)


@given(lengths, lengths)
def test_a_story_and_its_continuation_are_the_continuation(one: int, two: int) -> None:
    shorter, longer = sorted((one, two))
    earlier, later = story(attempts(shorter)), story(attempts(longer))

    assert join(earlier, later) == later


@given(lengths, lengths)
def test_an_old_copy_of_a_story_adds_nothing(one: int, two: int) -> None:
    shorter, longer = sorted((one, two))
    told = story(attempts(longer))

    assert join(told, story(attempts(shorter))) == told


@given(lengths, lengths)
def test_joining_again_changes_nothing(one: int, two: int) -> None:
    first, second = story(attempts(one)), story(attempts(two, generation=1))

    joined = join(first, second)

    assert join(joined, joined) == joined
    assert join(first, joined) == joined
    assert join(joined, second) == joined


@given(lengths, lengths, st.integers(0, KEPT - FIRST - 2))
def test_a_replays_story_may_grow_between_two_tellings(one: int, two: int, more: int) -> None:
    first, second = attempts(one), attempts(two + more, generation=1)
    joined = join(story(first), story(second[:two]))

    grown = join(joined, story(second))

    check_tells(grown, first + second)


def test_attempts_are_read_back_as_they_were() -> None:
    failure = Failure(
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        error_type="TimeoutError",
        text='two\nlines, "quoted"\u2028 {"outcome":"cut"}',
        stack='  File "x"\n',
    )
    attempt = attempt_of(
        failure, number=3, at=START, seconds=1.5, worker="w", version="1", generation=2
    )

    assert read(append("", attempt)) == [attempt]
    assert attempt.trouble is Trouble.TRANSIENT
    assert (attempt.text, attempt.stack) == (failure.text, failure.stack)


@pytest.mark.parametrize("count", [0, 1, 20, 21, 60])
def test_the_last_number_is_that_of_the_last_attempt(count: int) -> None:
    assert last_number(story(attempts(count))) == count


def test_times_without_a_zone_do_no_harm() -> None:
    naive = [
        msgspec.structs.replace(attempt, at=attempt.at.replace(tzinfo=None))
        for attempt in attempts(30)
    ]
    later = attempts(30, generation=1)

    joined = join(story(naive), story(later))

    check_tells(joined, naive + later)


def test_no_story_has_no_attempts() -> None:
    assert read("") == []
    assert join("", "") == ""
