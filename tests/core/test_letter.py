"""Letters: their states, and which moves between them are allowed."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.failure import ErrorCategory, Trouble
from deadletter.core.letter import MOVES, OPEN, Group, LetterHead, State, sources_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def head(**more: object) -> LetterHead:
    given = {"id": "l", "source": "orders", "message_id": "m", **more}
    return LetterHead(first_failed_at=NOW, dead_at=NOW, **given)  # type: ignore[arg-type]


def test_every_state_has_its_moves_and_none_stays_where_it_is() -> None:
    assert set(MOVES) == set(State)
    assert all(state not in targets for state, targets in MOVES.items())


def test_the_way_of_review_is_open_in_order_r4_49() -> None:
    way = [State.PENDING, State.REVIEWED, State.REPLAYING, State.REPLAYED, State.CLOSED]

    for state, following in pairwise(way):
        assert following in MOVES[state]


@pytest.mark.parametrize("state", sorted(set(State) - {State.PENDING}))
def test_nothing_is_final_every_letter_can_become_pending_again(state: State) -> None:
    assert State.PENDING in MOVES[state]


def test_every_state_can_be_reached_from_pending() -> None:
    reached, frontier = {State.PENDING}, {State.PENDING}
    while frontier:
        frontier = {new for state in frontier for new in MOVES[state]} - reached
        reached |= frontier

    assert reached == set(State)


def test_a_letter_that_waits_for_an_outcome_can_be_put_away_but_not_reviewed() -> None:
    assert MOVES[State.REPLAYING] >= {State.DISCARDED, State.CLOSED, State.PENDING}
    assert State.REVIEWED not in MOVES[State.REPLAYING]


def test_a_replayed_letter_can_be_replayed_again_only_once_it_failed() -> None:
    assert State.REPLAYING not in MOVES[State.REPLAYED]
    assert State.REPLAYING not in MOVES[State.CLOSED]


@given(st.sampled_from(State), st.sampled_from(State))
def test_sources_and_moves_say_the_same(old: State, new: State) -> None:
    assert (old in sources_of(new)) == (new in MOVES[old])


def test_open_is_where_somebody_has_to_do_something() -> None:
    assert {State.PENDING, State.REVIEWED, State.QUARANTINED} == OPEN


def test_a_group_counts_what_is_open() -> None:
    group = Group(
        fingerprint="f",
        source="orders",
        error_type="E",
        text="no",
        first_seen=NOW,
        last_seen=NOW,
        counts={State.PENDING: 3, State.CLOSED: 5, State.QUARANTINED: 1},
        total=12,
    )

    assert group.open == 4


@pytest.mark.parametrize(
    ("full", "name"), [("shop.errors.Timeout", "Timeout"), ("Timeout", "Timeout"), ("", "")]
)
def test_an_error_has_a_short_name(full: str, name: str) -> None:
    assert head(error_type=full).error_name == name


@pytest.mark.parametrize("trouble", Trouble)
def test_every_letter_has_exactly_one_category_r0_12(trouble: Trouble) -> None:
    retryable = {Trouble.TRANSIENT, Trouble.UNKNOWN, Trouble.WORKER_LOST}

    category = head(trouble=trouble).category

    assert (category is ErrorCategory.RETRYABLE) == (trouble in retryable)
