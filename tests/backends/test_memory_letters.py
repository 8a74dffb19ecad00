"""The memory office keeps what an office promises."""

import pytest

from deadletter.backends.memory.letters import MemoryLetters
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_contract import LetterStoreContract


class TestMemoryLetters(LetterStoreContract):
    driver = MemoryLetters

    @pytest.fixture
    def store(self, clock: FakeClock) -> MemoryLetters:
        return MemoryLetters(clock=clock, dice=SeededDice())
