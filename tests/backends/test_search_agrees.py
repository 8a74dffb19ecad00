"""The SQLite office finds exactly the letters that match, whatever is asked."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.backends.sqlite import search
from deadletter.backends.sqlite.letters_keep import keep
from deadletter.backends.sqlite.letters_rows import whole
from deadletter.backends.sqlite.schema import migrate
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.query import FIELDS, All, Any, Kind, Node, Not, Op, Term, matches
from deadletter.core.query.pattern import pattern
from deadletter.testing.generate import NOW, letters, queries

_EVERY = "SELECT * FROM letters JOIN letter_contents ON letter = seq"

# Text that SQLite cannot hold or match as it is, and text that matches itself
# in more ways than one would want to try.
_ODD = ["\0", "a\0b", "A\0B", "\ud800", "\udfffx", "", "aaaaaaaaab", "a[b]?*c", "ÄäA"]
_odd = st.sampled_from(_ODD)
_odd_patterns = st.lists(
    st.sampled_from(["", "a", "A", "\0", "\ud800", "b", "[", "?", "*", "ä"]),
    min_size=1,
    max_size=8,
).map(pattern)
_texts = [field for field in FIELDS.values() if field.kind is Kind.TEXT]


@pytest.fixture(scope="module")
def office() -> Iterator[sqlite3.Connection]:
    """An empty office, in which nothing is ever committed."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


@st.composite
def odd_letters(draw: st.DrawFn) -> DeadLetter:
    """Letters whose head holds odd text here and there."""
    letter = draw(letters())
    attributes = {field.attribute for field in _texts} - {"id"}
    chosen = draw(st.sets(st.sampled_from(sorted(attributes))))
    head = replace(letter.head, **{name: draw(_odd) for name in sorted(chosen)})
    identity = letter_id(head.source, head.partition, head.message_id)
    return replace(letter, head=replace(head, id=identity))


@st.composite
def odd_queries(draw: st.DrawFn) -> Node:
    """Searches for odd text, and for what has it not."""
    terms = st.builds(
        lambda field, values: Term(field.name, Op.IS, tuple(values)),
        st.sampled_from(_texts),
        st.lists(_odd_patterns, min_size=1, max_size=3),
    )
    return draw(
        st.recursive(
            terms,
            lambda inner: st.one_of(
                inner.map(Not),
                st.lists(inner, min_size=2, max_size=3).map(lambda n: All(tuple(n))),
                st.lists(inner, min_size=2, max_size=3).map(lambda n: Any(tuple(n))),
            ),
            max_leaves=4,
        )
    )


@given(
    kept=st.lists(st.one_of(letters(), odd_letters()), max_size=8),
    query=st.one_of(queries(), queries(), odd_queries()),
    limit=st.integers(1, 5),
    look=st.sampled_from([1, 3, 1000]),
    opened=st.sampled_from([1, 2, 1000]),
)
@settings(max_examples=400, deadline=None)
def test_a_search_finds_exactly_what_matches(
    office: sqlite3.Connection,
    kept: list[DeadLetter],
    query: Node,
    limit: int,
    look: int,
    opened: int,
) -> None:
    office.execute("BEGIN")
    try:
        keep(office, kept, NOW)
        there = [letter for _, letter in whole(office, _EVERY, ())]
        there.sort(key=lambda letter: letter.head.dead_at)

        with (
            mock.patch.object(search, "LOOK", look),
            mock.patch.object(search, "OPEN", opened),
            mock.patch.object(search, "_SLICE", opened),
        ):
            found = list(_pages(office, query, limit))
    finally:
        office.execute("ROLLBACK")

    expected = [letter.head for letter in there if matches(query, letter, now=NOW)]
    assert found == expected[::-1]


def _pages(
    office: sqlite3.Connection, query: Node, limit: int
) -> Iterator[LetterHead]:
    after = None
    while True:
        page = search.find(office, query, limit=limit, after=after, now=NOW)
        assert len(page.heads) <= limit
        assert len(page.heads) <= page.looked_at <= search.LOOK
        yield from page.heads
        if page.after is None:
            return
        assert page.after != after
        after = page.after
