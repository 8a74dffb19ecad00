"""The NATS engine keeps what mailboxes promise."""

from collections.abc import AsyncIterator

import pytest

from deadletter.backends.nats.engine import NatsEngine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import OptionsContract
from engines.nats_rig import HastyClock, fresh, hasty, pass_by
from servers import Server


class TestNats(QueueContract, OptionsContract):
    driver = NatsEngine
    slack = 0.3

    @pytest.fixture
    def clock(self) -> HastyClock:
        return HastyClock()

    @pytest.fixture
    async def engine(
        self, clock: HastyClock, nats_server: Server
    ) -> AsyncIterator[NatsEngine]:
        engine = await hasty(fresh(nats_server.url), clock)
        yield engine
        await engine.close()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        # Calls take time too: half of a short second, when it comes to fractions.
        await pass_by(seconds if seconds >= 3 else seconds - 0.5)
