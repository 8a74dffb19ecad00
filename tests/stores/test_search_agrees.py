"""The SQLite office finds exactly the letters that match, whatever is asked."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.generate import NOW, budgets, letters, queries
from contracts.odd_searches import odd_searches
from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.query import STEP, Budget, Meter, Node, matches, parse
from deadletter.core.seals import PLAIN
from deadletter.stores.sqlite import body_index, search
from deadletter.stores.sqlite.audit import teach
from deadletter.stores.sqlite.body_index import index_up_to
from deadletter.stores.sqlite.letters_rows import whole
from deadletter.stores.sqlite.opening import migrate
from deadletter.stores.sqlite.search import narrowest, size, windows
from deadletter.stores.sqlite.text_index import index_some
from deadletter.testing.letters_bench import a_letter
from stores.sqlite_filing import keep

_EVERY = "SELECT *, seq AS tag FROM letters JOIN letter_contents ON letter = seq"

# Text that SQLite cannot hold or match as it is, and text that matches itself
# in more ways than one would want to try.
_ODD = ["\0", "a\0b", "A\0B.c", "\ud800", "x\udfffX", "", "aaaaaaaaab", "a[b]?*c", "ÄäA"]


@pytest.fixture(scope="module")
def office() -> Iterator[sqlite3.Connection]:
    """An empty office, in which nothing is ever committed."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        teach(connection, PLAIN)
        migrate(connection)
        index_up_to(connection, 40)  # some bodies are larger
        yield connection


@given(odd=odd_searches(_ODD))
@settings(max_examples=400, deadline=None)
def test_odd_text_is_found_like_any_other(
    office: sqlite3.Connection, odd: tuple[list[DeadLetter], Node]
) -> None:
    letters, query = odd

    found, expected = _searched(office, letters, query, limit=3)

    assert found == expected


@pytest.mark.slow
@given(
    kept=st.lists(letters(), max_size=8), query=queries(), limit=st.integers(1, 5), budget=budgets()
)
@settings(max_examples=250, deadline=None)
def test_a_search_finds_exactly_what_matches(
    office: sqlite3.Connection, kept: list[DeadLetter], query: Node, limit: int, budget: Budget
) -> None:
    found, expected = _searched(office, kept, query, limit=limit, budget=budget)

    assert found == expected


def _searched(
    office: sqlite3.Connection,
    letters: list[DeadLetter],
    query: Node,
    *,
    limit: int,
    budget: Budget = STEP,
) -> tuple[list[LetterHead], list[LetterHead]]:
    """What a search finds among these letters, and what it should find."""
    office.execute("BEGIN")
    try:
        keep(office, letters[: len(letters) // 2], NOW, GroupLimit())
        while index_some(office) or body_index.index_some(office):
            pass
        # Some are indexed, some changed since, some new.
        keep(office, letters, NOW, GroupLimit())
        there = [letter for _, letter in whole(office, _EVERY, ())]
        there.sort(key=lambda letter: letter.head.dead_at)
        found = list(_pages(office, query, limit, budget))
        assert list(_names(office, query, limit, budget)) == [head.id for head in found]
    finally:
        office.execute("ROLLBACK")
    expected = [letter.head for letter in there if matches(query, letter, now=NOW)]
    return found, expected[::-1]


def _pages(
    office: sqlite3.Connection, query: Node, limit: int, budget: Budget
) -> Iterator[LetterHead]:
    after = None
    while True:
        meter = Meter(time.monotonic, budget)
        page = search.find(office, query, limit=limit, after=after, now=NOW, meter=meter)
        assert len(page.heads) <= limit
        assert len(page.heads) <= page.looked_at <= max(budget.letters, limit)
        assert (page.after is None) == (page.back_to is None)
        yield from page.heads
        if page.after is None:
            return
        assert page.after != after
        after = page.after


def _names(office: sqlite3.Connection, query: Node, limit: int, budget: Budget) -> Iterator[str]:
    after = None
    while True:
        meter = Meter(time.monotonic, budget)
        names = search.find_ids(office, query, limit=limit, after=after, now=NOW, meter=meter)
        assert len(names.ids) <= limit
        yield from names.ids
        if names.after is None:
            return
        assert names.after != after
        after = names.after


def test_a_long_list_of_ids_leads_a_search(office: sqlite3.Connection) -> None:
    office.execute("BEGIN")
    try:
        kept = keep(office, [a_letter() for _ in range(40)], NOW, GroupLimit())
        named = parse(f"id:[{','.join(one.id for one in kept[:20])}]")
        found = windows([named], NOW)
        chosen = narrowest(office, found, start=None, most=STEP.letters)
        assert size(office, chosen, start=None, most=STEP.letters) == 20
    finally:
        office.execute("ROLLBACK")
