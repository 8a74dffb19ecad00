"""Whatever is done to a mailbox: nothing is lost, doubled or wrongly charged."""

import pytest
from hypothesis.stateful import rule, run_state_machine_as_test

from deadletter.brokers.rabbitmq.engine import RabbitEngine, connect
from engines.machines import BOX, MailboxMachine, runs
from engines.rabbitmq_rig import emptied
from servers import Server

pytestmark = pytest.mark.slow


class RabbitMachine(MailboxMachine):
    """The broker keeps time itself, so nothing is delayed here."""

    url: str
    engine: RabbitEngine

    async def open(self) -> RabbitEngine:
        engine = await connect(self.url, clock=self.clock)
        if not self.count:
            await emptied(engine)
        return engine

    async def vanish(self) -> None:
        self.engine._mailboxes._box(BOX).inbox.close()

    @rule()
    def the_engine_is_opened_again(self) -> None:
        self.run(self.engine.close())
        self.engine = self.run(self.open())
        self.lose()


def test_nothing_is_lost_doubled_or_wrongly_charged(rabbitmq_server: Server) -> None:
    RabbitMachine.url = rabbitmq_server.url
    run_state_machine_as_test(RabbitMachine, settings=runs(40, 30))
