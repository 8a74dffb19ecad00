"""The MongoDB office keeps what an office promises."""

from collections.abc import AsyncIterator

import pytest

from deadletter.ports import LetterStore
from deadletter.stores.mongodb.letters import MongodbLetters
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_contract import LetterStoreContract
from engines.mongodb_rig import emptied, on_clock
from servers import Server


class TestMongodbLetters(LetterStoreContract):
    driver = MongodbLetters

    @pytest.fixture
    async def store(self, clock: FakeClock, mongodb_server: Server) -> AsyncIterator[LetterStore]:
        engine = await on_clock(await emptied(mongodb_server.url), clock)
        assert engine.letters is not None
        yield engine.letters
        await engine.close()
