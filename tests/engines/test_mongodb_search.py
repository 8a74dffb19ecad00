"""The MongoDB office finds exactly the letters that match, whatever is asked."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.generate import NOW, budgets, letters, queries
from contracts.odd_searches import odd_letter, odd_searches
from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.query import EVERYTHING, STEP, Budget, Meter, Node, matches, parse
from deadletter.office.transactions.filing import file_letters
from deadletter.stores.mongodb import search
from deadletter.stores.mongodb.database import Database, Session, begin
from deadletter.stores.mongodb.engine import MongodbEngine
from deadletter.stores.mongodb.letter_operations import MongodbOperations
from deadletter.stores.mongodb.letters_documents import INLINE, get
from deadletter.testing.fakes import START, FakeClock
from deadletter.testing.letters_bench import a_letter
from engines.machines import runs
from engines.mongodb_rig import database_of, emptied, on_clock
from servers import Server

# Text that BSON cannot hold as it is, text that means something to the server, and
# text that matches itself in more ways than one would want to try.
_ODD = [
    *("\0", "a\0b", "A\0B.c", "\ud800", "x\udfffX", "d800", "\ufdd0d800", ""),
    *("$where", "a.b$c", "^a.*$", "aaaaaaaaab", "a[b]?*c", "ÄäA", "k\u212aK", "a\nb"),
]


class Office:
    """An empty office on a loop of its own, in which nothing is ever committed."""

    def __init__(self, runner: asyncio.Runner, engine: MongodbEngine) -> None:
        self._runner = runner
        self.db: Database = database_of(engine)
        self.budget = STEP

    def _meter(self) -> Meter:
        return Meter(time.monotonic, self.budget)

    def searched(
        self, letters: list[DeadLetter], query: Node, *, limit: int, budget: Budget = STEP
    ) -> tuple[list[LetterHead], list[LetterHead]]:
        """What a search finds among these letters, and what it should find."""
        self.budget = budget
        return self._runner.run(self._searched(letters, query, limit))

    async def _searched(
        self, letters: list[DeadLetter], query: Node, limit: int
    ) -> tuple[list[LetterHead], list[LetterHead]]:
        async with self.db._client.start_session() as session:
            await session.start_transaction()
            turn = await begin(self.db.there, session)
            kept = await file_letters(MongodbOperations(turn), letters, NOW, GroupLimit())
            ids = list(dict.fromkeys(one.id for one in kept))
            there = await get(self.db.there, session, ids)
            found = [head async for head in self._pages(session, query, limit)]
            names = [id_ async for id_ in self._names(session, query, limit)]
            await session.abort_transaction()
        assert names == [head.id for head in found]
        there.sort(key=lambda letter: letter.head.dead_at)
        expected = [one.head for one in there if matches(query, one, now=NOW)]
        return found, expected[::-1]

    async def _pages(self, session: Session, query: Node, limit: int) -> AsyncIterator[LetterHead]:
        after = None
        while True:
            asked = search.Asked(query, limit, after, NOW, self._meter())
            page = await search.find(self.db.there, session, asked)
            assert len(page.heads) <= limit
            assert len(page.heads) <= page.looked_at <= max(self.budget.letters, limit)
            for head in page.heads:
                yield head
            if page.after is None:
                return
            assert page.after != after
            after = page.after

    async def _names(self, session: Session, query: Node, limit: int) -> AsyncIterator[str]:
        after = None
        while True:
            asked = search.Asked(query, limit, after, NOW, self._meter())
            names = await search.find_ids(self.db.there, session, asked)
            assert len(names.ids) <= limit
            for id_ in names.ids:
                yield id_
            if names.after is None:
                return
            assert names.after != after
            after = names.after


@pytest.fixture(scope="module")
def office(mongodb_server: Server) -> Iterator[Office]:
    with asyncio.Runner() as runner:
        url = runner.run(emptied(mongodb_server.url))
        engine = runner.run(on_clock(url, FakeClock(NOW)))
        yield Office(runner, engine)
        runner.run(engine.close())


@given(odd=odd_searches(_ODD))
@runs(120)
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
@runs(200)
def test_a_search_finds_exactly_what_matches(
    office: Office, kept: list[DeadLetter], query: Node, limit: int, budget: Budget
) -> None:
    found, expected = office.searched(kept, query, limit=limit, budget=budget)

    assert found == expected


def test_texts_that_look_like_escapes_are_not_decoded(office: Office) -> None:
    letters = [odd_letter("error_text", text) for text in ("\ud800", "d800", "plain")]

    like = office.searched(letters, parse("text:d800"), limit=3)
    unlike = office.searched(letters, parse("!text:d800"), limit=3)

    assert [head.error_text for head in like[0]] == ["d800"]
    assert [head.error_text for head in unlike[0]] == ["plain", "\ud800"]
    assert (like[0], unlike[0]) == (like[1], unlike[1])


def test_of_a_large_body_only_the_beginning_is_searched(office: Office) -> None:
    large = a_letter(b"needle" + b"x" * INLINE + b"haystack")

    beginning = office.searched([large], parse("needle"), limit=3)
    end = office.searched([large], parse("haystack"), limit=3)

    assert [len(found) for found in beginning] == [1, 1]
    assert end == ([], [])


def test_pages_go_on_to_the_microsecond(office: Office) -> None:
    letters = [a_letter(at=START + timedelta(microseconds=n)) for n in range(9)]

    found, expected = office.searched(letters, EVERYTHING, limit=2)

    assert found == expected
    assert [head.dead_at for head in found] == [letter.head.dead_at for letter in reversed(letters)]
