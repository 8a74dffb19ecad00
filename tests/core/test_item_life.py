"""Who of many gets which item, and what an id is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.queue_server.model import (
    LeaseRound,
    first_number,
    item_id,
    item_number,
    least_loaded,
)

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


def test_of_equal_loads_the_first_partition_is_taken() -> None:
    assert least_loaded([3, 1, 1]) == 1
