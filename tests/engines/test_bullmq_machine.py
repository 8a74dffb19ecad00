"""Whatever is done to a queue of BullMQ: nothing is lost, doubled, wrongly charged."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from deadletter.brokers.bullmq.engine import BullEngine
from engines.bullmq_rig import fresh, on_clock
from engines.machines import LEASE, MailboxMachine, runs
from servers import Server

pytestmark = pytest.mark.slow


class BullMachine(MailboxMachine):
    """What is due first need not come first: BullMQ lines up what falls due."""

    server: str
    engine: BullEngine
    delays = st.sampled_from([0.0, 0.0, 2.5, 45.0])

    def __init__(self) -> None:
        super().__init__()
        self.url = fresh(self.server)

    async def open(self) -> BullEngine:
        return await on_clock(self.url, self.clock)

    async def vanish(self) -> None:
        await self.engine.close()
        self.engine = await self.open()
        self.clock.advance(LEASE)
        await self.engine.broker.sweep()

    @rule(seconds=st.sampled_from([1.0, 3.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        held = [delivery for _, delivery in self.held.values()]
        self.clock.advance(seconds)
        source = self.engine.broker.source("orders")
        assert all(self.run(source.extend(held, lease=LEASE)))


def test_nothing_is_lost_doubled_or_wrongly_charged(redis_server: Server) -> None:
    BullMachine.server = redis_server.url
    run_state_machine_as_test(BullMachine, settings=runs(60, 40))
