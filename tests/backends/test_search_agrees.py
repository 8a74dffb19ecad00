"""The SQLite office finds exactly the letters that match, whatever is asked."""

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.backends.sqlite import search
from deadletter.backends.sqlite.letters_keep import keep
from deadletter.backends.sqlite.letters_whole import whole
from deadletter.backends.sqlite.schema import migrate
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.query import (
    FIELDS,
    All,
    Field,
    Kind,
    Node,
    Not,
    Op,
    Term,
    matches,
)
from deadletter.core.query.pattern import pattern
from deadletter.testing.generate import NOW, letters, queries
from deadletter.testing.letters_bench import a_letter

_EVERY = "SELECT *, seq AS tag FROM letters JOIN letter_contents ON letter = seq"

# Text that SQLite cannot hold or match as it is, and text that matches itself
# in more ways than one would want to try.
_ODD = [
    "\0",
    "a\0b",
    "A\0B.c",
    "\ud800",
    "x\udfffX",
    "",
    "aaaaaaaaab",
    "a[b]?*c",
    "ÄäA",
]
_TEXTS = [
    field for field in FIELDS.values() if field.kind is Kind.TEXT and field.name != "id"
]
_OPEN = Term("is", Op.IS, ("open",))


@pytest.fixture(scope="module")
def office() -> Iterator[sqlite3.Connection]:
    """An empty office, in which nothing is ever committed."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        yield connection


def odd_letter(attribute: str, text: str) -> DeadLetter:
    """A letter with odd text in one place of its head."""
    letter = a_letter()
    head = replace(letter.head, **{attribute: text})
    message = replace(letter.message, id=head.message_id)
    return replace(letter, head=head, message=message)


@st.composite
def patterns_of(draw: st.DrawFn, texts: list[str]) -> str:
    """Patterns that fit one of these texts, or nearly."""
    text = draw(st.sampled_from(texts))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    ends = [0, *cuts, len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(ends)]
    place = draw(st.integers(0, 2 * len(parts)))
    if place < len(parts):
        parts[place] = draw(st.sampled_from(["", "z", text.swapcase()]))
    return pattern(parts)


_places = st.sampled_from(
    [
        lambda term: term,
        Not,
        lambda term: All((term, _OPEN)),
    ]
)


@given(
    field=st.sampled_from(_TEXTS),
    texts=st.lists(st.sampled_from(_ODD), min_size=1, max_size=4, unique=True),
    data=st.data(),
    within=_places,
)
@settings(max_examples=400, deadline=None)
def test_odd_text_is_found_like_any_other(
    office: sqlite3.Connection,
    field: Field,
    texts: list[str],
    data: st.DataObject,
    within: Callable[[Node], Node],
) -> None:
    patterns = data.draw(st.lists(patterns_of(texts), min_size=1, max_size=2))
    query = within(Term(field.name, Op.IS, tuple(patterns)))
    letters = [odd_letter(field.attribute, text) for text in texts]

    found, expected = _searched(office, letters, query, limit=3)

    assert found == expected


@pytest.mark.slow
@given(
    kept=st.lists(letters(), max_size=8),
    query=queries(),
    limit=st.integers(1, 5),
    budget=st.sampled_from([(1, 1), (3, 2), (1000, 2), (1000, 1000)]),
)
@settings(max_examples=250, deadline=None)
def test_a_search_finds_exactly_what_matches(
    office: sqlite3.Connection,
    kept: list[DeadLetter],
    query: Node,
    limit: int,
    budget: tuple[int, int],
) -> None:
    look, opened = budget

    with (
        mock.patch.object(search, "LOOK", look),
        mock.patch.object(search, "OPEN", opened),
        mock.patch.object(search, "_SLICE", opened),
    ):
        found, expected = _searched(office, kept, query, limit=limit)

    assert found == expected


def _searched(
    office: sqlite3.Connection, letters: list[DeadLetter], query: Node, *, limit: int
) -> tuple[list[LetterHead], list[LetterHead]]:
    """What a search finds among these letters, and what it should find."""
    office.execute("BEGIN")
    try:
        keep(office, letters, NOW)
        there = [letter for _, letter in whole(office, _EVERY, ())]
        there.sort(key=lambda letter: letter.head.dead_at)
        found = list(_pages(office, query, limit))
        assert list(_names(office, query, limit)) == [head.id for head in found]
    finally:
        office.execute("ROLLBACK")
    expected = [letter.head for letter in there if matches(query, letter, now=NOW)]
    return found, expected[::-1]


def _pages(office: sqlite3.Connection, query: Node, limit: int) -> Iterator[LetterHead]:
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


def _names(office: sqlite3.Connection, query: Node, limit: int) -> Iterator[str]:
    after = None
    while True:
        names = search.find_ids(office, query, limit=limit, after=after, now=NOW)
        assert len(names.ids) <= limit
        yield from names.ids
        if names.after is None:
            return
        assert names.after != after
        after = names.after
