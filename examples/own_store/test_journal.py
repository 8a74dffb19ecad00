"""The journal keeps what a letter store promises, also after it is opened again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from journal import JournalLetters, open_letters

from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_contract import LetterStoreContract


class TestJournal(LetterStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: FakeClock) -> AsyncIterator[JournalLetters]:
        path = tmp_path / "letters.jsonl"
        store = await open_letters(path, clock=clock, dice=SeededDice())
        yield store
        store.close()
        again = await open_letters(path, clock=clock, dice=SeededDice())
        again.close()
        assert await again.counts() == await store.counts()
        assert await again.audit(limit=10_000) == await store.audit(limit=10_000)
