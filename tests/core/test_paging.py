"""Where a list was left off survives being written down."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import QueryError
from deadletter.core.letter import Group, State
from deadletter.core.query.search_step import (
    cursor,
    group_cursor,
    group_place,
    place,
    place_of_group,
)

_PLACE_OF_GROUP = re.compile(r"[0-9a-f.]*\.")
_PLACE = re.compile(r"[0-9a-f]+\.[0-9a-f]+")


@given(dead_at=st.datetimes(timezones=st.just(UTC)), seq=st.integers(0, 2**56))
def test_a_place_comes_back_exactly(dead_at: datetime, seq: int) -> None:
    assert place(cursor(dead_at, seq)) == (dead_at, seq)


@given(text=st.text(max_size=40))
def test_any_other_text_is_refused_in_words(text: str) -> None:
    if _PLACE.fullmatch(text):
        return

    with pytest.raises(QueryError, match="not a valid cursor"):
        place(text)


@pytest.mark.parametrize("text", ["", ".", "1", "g.1", "1.1\n", "f" * 15 + ".1"])
def test_what_looks_like_a_place_may_be_none(text: str) -> None:
    with pytest.raises(QueryError, match="not a valid cursor"):
        place(text)


@given(
    opened=st.integers(0, 2**56),
    more=st.integers(0, 2**56),
    seen=st.datetimes(timezones=st.just(UTC)),
    name=st.text(max_size=40),
)
def test_a_place_among_groups_comes_back_exactly(
    opened: int, more: int, seen: datetime, name: str
) -> None:
    group = Group(
        fingerprint=name,
        source="orders",
        error_type="",
        text="",
        first_seen=seen,
        last_seen=seen,
        counts={State.PENDING: opened},
        total=opened + more,
    )

    assert group_place(group_cursor(group)) == place_of_group(group)


@given(text=st.text(max_size=40))
@pytest.mark.parametrize("start", ["", "1.", "1.1.", "1.1." + "f" * 15 + ".", "g.1.1."])
def test_any_other_place_among_groups_is_refused_in_words(start: str, text: str) -> None:
    if _PLACE_OF_GROUP.match(text):
        return

    with pytest.raises(QueryError, match="not a valid cursor"):
        group_place(start + text)
