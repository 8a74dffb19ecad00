"""The NATS engine keeps what mailboxes promise."""

from collections.abc import AsyncIterator

import pytest

from deadletter.brokers.nats.engine import NatsEngine
from deadletter.ports import Acked, Engine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import OptionsContract
from engines.nats_rig import SECOND, HastyClock, fresh, hasty
from servers import Server

_CLOSE = (
    "test_a_delayed_message_is_not_received_before_its_time",
    "test_a_release_is_delayed_as_asked",
    "test_only_the_fenced_ones_of_a_batch_are_refused",
)


class TestNats(QueueContract, OptionsContract):
    """
    The server keeps the time, in seconds that are short.

    What happens within one or two of them takes longer ones: we may be busy.
    """

    driver = NatsEngine
    at_once = 0.25
    slack = 0.3

    @pytest.fixture
    def clock(self, request: pytest.FixtureRequest) -> HastyClock:
        return HastyClock(0.3 if request.node.name in _CLOSE else SECOND)

    @pytest.fixture
    async def engine(self, clock: HastyClock, nats_server: Server) -> AsyncIterator[NatsEngine]:
        engine = await hasty(fresh(nats_server.url), clock)
        yield engine
        await engine.close()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        assert isinstance(clock, HastyClock)
        # Calls take time too: half of a short second, when it comes to fractions.
        await clock.pass_by(seconds if seconds >= 3 else max(0.0, seconds - 0.5))

    async def test_live_claims_are_left_alone(self, engine: Engine, clock: FakeClock) -> None:
        """As elsewhere; but not to the last moment."""
        await self.sent(engine)
        delivery = await self.received(engine)
        await self.pass_time(clock, LEASE / 2)

        swept = await engine.broker.sweep()

        assert (swept.lost, swept.suspects, swept.doomed) == (0, frozenset(), ())
        assert await engine.broker.source("orders").settle([Acked(delivery)]) == [True]

    async def test_an_extended_lease_holds(self, engine: Engine, clock: FakeClock) -> None:
        """As elsewhere; but not to the last moment."""
        await self.sent(engine)
        delivery = await self.received(engine)
        source = engine.broker.source("orders")

        await self.pass_time(clock, LEASE * 0.6)
        extended = await source.extend([delivery, delivery], lease=LEASE)
        await self.pass_time(clock, LEASE * 0.6)

        assert extended == [True, True]
        assert (await engine.broker.sweep()).lost == 0
        assert await source.settle([Acked(delivery)]) == [True]
