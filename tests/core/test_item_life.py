"""Who of many gets which item, and what an id is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.queue_server.model import first_number, item_id, item_number
from deadletter.queue_server.plans import LeaseRound, choose_partition, fair_shares

_numbers = st.integers(0, (1 << 63) - 1)


@given(
    wants=st.lists(st.integers(0, 5), max_size=6),
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=4),
)
def test_a_round_hands_out_what_is_there_to_all_who_want(
    wants: list[int], sizes: list[int]
) -> None:
    shelves = {n: [(n, i) for i in range(size)] for n, size in enumerate(sizes)}
    handing: LeaseRound[tuple[int, int]] = LeaseRound(wants, list(shelves))
    while asked := handing.next_requests():
        for partition, limit in asked.items():
            taken, shelves[partition] = (shelves[partition][:limit], shelves[partition][limit:])
            handing.assign(partition, taken)

    shares = handing.shares()

    given_out = [thing for _, things in shares for thing in things]
    left = [thing for shelf in shelves.values() for thing in shelf]
    assert sorted(given_out + left) == sorted(
        (n, i) for n, size in enumerate(sizes) for i in range(size)
    )
    for want, (partition, things) in zip(wants, shares, strict=True):
        assert len(things) <= want
        assert {n for n, _ in things} <= {partition}
        assert list(things) == sorted(things)
        assert things or not want or not left  # nobody goes without while there is one


@given(one=_numbers, other=_numbers)
def test_ids_sort_like_numbers_and_tell_them(one: int, other: int) -> None:
    assert item_number(item_id(one)) == one
    assert (item_id(one) < item_id(other)) == (one < other)


@given(st.text(max_size=20) | st.text("0123456789abcdefABCDEF", max_size=18))
def test_invalid_ids_have_no_number(text: str) -> None:
    number = item_number(text)

    assert number is None or item_id(number) == text


def test_a_pivot_is_an_id_or_nothing() -> None:
    assert first_number("") == 0
    assert first_number(item_id(77)) == 77
    with pytest.raises(ConfigError, match="expected the id of an item"):
        first_number("77")


def test_of_equal_loads_the_first_partition_is_chosen() -> None:
    assert choose_partition([3, 1, 1], {}) == 1


@given(
    loads=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    failures=st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=4),
)
def test_failures_count_before_load(loads: list[int], failures: dict[int, int]) -> None:
    chosen = choose_partition(loads, failures)

    for other, load in enumerate(loads):
        fails, of_chosen = failures.get(other, 0), failures.get(chosen, 0)
        assert of_chosen <= fails
        assert fails > of_chosen or load >= loads[chosen]


@pytest.mark.parametrize(
    ("wants", "available", "shares"),
    [
        ([20, 6, 1], 23, [16, 6, 1]),
        ([10, 10, 10, 10, 10], 10, [2, 2, 2, 2, 2]),
        ([5, 5, 5], 7, [3, 2, 2]),
        ([9, 9, 9], 2, [1, 1, 0]),
        ([1, 6, 20], 100, [1, 6, 20]),
        ([0, 3, 0], 2, [0, 2, 0]),
        ([], 5, []),
    ],
)
def test_what_is_there_is_shared_evenly(
    wants: list[int], available: int, shares: list[int]
) -> None:
    assert fair_shares(wants, available) == shares


_wants = st.lists(st.integers(0, 30), max_size=12)


@given(wants=_wants, available=st.integers(0, 200))
def test_shares_are_fair(wants: list[int], available: int) -> None:
    shares = fair_shares(wants, available)

    assert len(shares) == len(wants)
    assert sum(shares) == min(available, sum(wants))  # nothing is left over, nothing invented
    for client, (want, share) in enumerate(zip(wants, shares, strict=True)):
        assert 0 <= share <= want
        for later, (more, other) in enumerate(zip(wants, shares, strict=True)):
            if share < want:  # nobody has more than one who still wants some, but for the rest
                assert other <= share + 1
                assert other <= share or later < client
            if more >= want:
                assert other >= share or client < later


@given(wants=_wants, available=st.integers(0, 200))
def test_sharing_deals_like_cards_one_after_another(wants: list[int], available: int) -> None:
    dealt = [0] * len(wants)
    while available and any(have < want for have, want in zip(dealt, wants, strict=True)):
        for client, want in enumerate(wants):
            if dealt[client] < want and available:
                dealt[client] += 1
                available -= 1

    assert fair_shares(wants, sum(dealt)) == dealt
