"""Whatever is done to a mailbox: nothing is lost, doubled or wrongly charged."""

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from deadletter.brokers.kafka.engine import KafkaEngine
from deadletter.testing.queue_bench import info
from engines.kafka_rig import fresh, opened, see_all, silenced
from engines.machines import BOX, MailboxMachine, runs
from servers import Server

pytestmark = pytest.mark.slow


class KafkaMachine(MailboxMachine):
    """
    Enough at a time that some are counted ahead of who will ask for them.

    Whoever leaves in order says what he had in hand, and nobody is charged for it.
    """

    server: str
    engine: KafkaEngine
    delays = st.sampled_from([0.0, 0.0, 0.0, 3.0, 100.0])
    most = 25

    def __init__(self) -> None:
        super().__init__()
        self.url = fresh(self.server)

    async def open(self) -> KafkaEngine:
        engine = await opened(self.url, self.clock)
        await see_all(engine, BOX)
        return engine

    async def vanish(self) -> None:
        silenced(self.engine, BOX)
        await self.engine.close()
        self.engine = await self.open()
        swept = await self.engine.broker.sweep()
        assert swept.lost >= len(self.held)

    @rule()
    def the_engine_is_opened_again(self) -> None:
        self.run(self.engine.close())
        self.engine = self.run(self.open())
        assert not self.run(self.engine.broker.sweep()).lost
        self.lose(charged=False)

    @rule(seconds=st.sampled_from([1.0, 3.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def everything_is_counted(self) -> None:
        if hasattr(self, "engine"):
            counts = self.run(info(self.engine.broker, BOX))
            present = counts.ready + counts.delayed + counts.claimed + counts.suspects
            assert present == len(self.there) + len(self.held)
            assert counts.tally["sent"] == self.count


def test_nothing_is_lost_doubled_or_wrongly_charged(kafka_server: Server) -> None:
    KafkaMachine.server = kafka_server.url
    # Without shrinking, which would take minutes: an example is topics and groups.
    generated = [Phase.explicit, Phase.reuse, Phase.generate]
    settings = runs(20, 25, phases=generated)
    run_state_machine_as_test(KafkaMachine, settings=settings)
