"""Where a list was left off survives being written down."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import QueryError
from deadletter.core.paging import cursor, place

_PLACE = re.compile(r"[0-9a-f]+\.[0-9a-f]+")


@given(
    dead_at=st.datetimes(timezones=st.just(UTC)),
    seq=st.integers(0, 2**56),
)
def test_a_place_comes_back_exactly(dead_at: datetime, seq: int) -> None:
    assert place(cursor(dead_at, seq)) == (dead_at, seq)


@given(text=st.text(max_size=40))
def test_any_other_text_is_refused_in_words(text: str) -> None:
    if _PLACE.fullmatch(text):
        return

    with pytest.raises(QueryError, match="left off"):
        place(text)


@pytest.mark.parametrize("text", ["", ".", "1", "g.1", "1.1\n", "f" * 15 + ".1"])
def test_what_looks_like_a_place_may_be_none(text: str) -> None:
    with pytest.raises(QueryError, match="left off"):
        place(text)
