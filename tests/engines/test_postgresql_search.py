"""The PostgreSQL office finds exactly the letters that match, whatever is asked."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.generate import NOW, budgets, letters, queries
from contracts.odd_searches import odd_searches
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.query import STEP, Budget, Meter, Node, matches, parse
from deadletter.stores.postgresql import letters as store
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_bench import a_letter
from engines.machines import runs
from engines.postgresql_time import ToldTime, told_database, told_time

__all__ = ["told_database"]

# Text that PostgreSQL cannot hold or match as it is, and what we write instead.
_ODD = [
    "\0",
    "a\0b",
    "A\0B.c",
    "\ud800",
    "x\udfffX",
    "\ufdd0",
    "\ufdd00000",
    "",
    "aaaaaaaaab",
    "a%b_c\\d*",
    "ÄäA",
    "k" * 3000,
]


class Office:
    """An office on an event loop of its own, emptied for each example."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._clock = FakeClock(NOW)
        self._opening = told_time(url, self._clock)
        self._time: ToldTime = self._runner.run(self._opening.__aenter__())
        self._engine: PostgresqlEngine = self._runner.run(open_database(url, self._clock))

    def close(self) -> None:
        self._runner.run(self._engine.close())
        self._runner.run(self._opening.__aexit__(None, None, None))
        self._runner.close()

    def searched(
        self, letters: list[DeadLetter], query: Node, limit: int
    ) -> tuple[list[LetterHead], list[LetterHead]]:
        """What a search finds among these letters, and what it should find."""
        return self._runner.run(self._searched(letters, query, limit))

    async def _searched(
        self, letters: list[DeadLetter], query: Node, limit: int
    ) -> tuple[list[LetterHead], list[LetterHead]]:
        await self._time.empty()
        store = self._engine.letters
        assert store is not None
        await store.index_bodies(40)  # some bodies are larger
        await store.keep(letters[: len(letters) // 2])
        while await store.index_texts():
            pass
        # Some are indexed, some changed since, some new.
        ids = dict.fromkeys(one.id for one in await store.keep(letters))
        there = sorted(await store.get(list(ids)), key=lambda letter: letter.head.dead_at)
        found = [head async for head in self._pages(query, limit)]
        expected = [letter.head for letter in there if matches(query, letter, now=NOW)]
        return found, expected[::-1]

    async def _pages(self, query: Node, limit: int) -> AsyncIterator[LetterHead]:
        after = None
        assert self._engine.letters is not None
        while True:
            page = await self._engine.letters.find(query, limit=limit, after=after)
            assert len(page.heads) <= limit
            assert len(page.heads) <= page.looked_at <= STEP.letters
            for head in page.heads:
                yield head
            if page.after is None:
                return
            assert page.after != after
            after = page.after


@pytest.fixture(scope="module")
def office(told_database: str) -> Iterator[Office]:
    office = Office(told_database)
    yield office
    office.close()


@given(odd=odd_searches(_ODD))
@runs(150)
def test_odd_text_is_found_like_any_other(
    office: Office, odd: tuple[list[DeadLetter], Node]
) -> None:
    letters, query = odd

    found, expected = office.searched(letters, query, limit=3)

    assert found == expected


@pytest.mark.slow
@given(
    kept=st.lists(letters(), max_size=8), query=queries(), limit=st.integers(1, 5), budget=budgets()
)
@runs(150)
def test_a_search_finds_exactly_what_matches(
    office: Office, kept: list[DeadLetter], query: Node, limit: int, budget: Budget
) -> None:
    with mock.patch.object(store, "Meter", partial(Meter, budget=budget)):
        found, expected = office.searched(kept, query, limit=limit)

    assert found == expected


@pytest.mark.parametrize(
    "query",
    [
        "attempts:>999999999999999999",
        "!size:<999999999999999999",
        "since:0001-01-01 until:9999-12-31",
    ],
)
def test_numbers_beyond_all_measure_find_what_they_should(office: Office, query: str) -> None:
    found, expected = office.searched([a_letter()], parse(query), limit=5)

    assert found == expected
