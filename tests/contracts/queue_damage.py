"""Engines that keep messages in a form of their own: damage stays alone."""

from deadletter.core.failure import Bury, Reason
from deadletter.core.policy import DLQPolicy
from deadletter.ports import Acked, Engine
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import LEASE, MailboxBench, a_message


class DamageContract(MailboxBench):
    """A message that cannot be read back is handed out to be buried, and told apart."""

    async def test_what_cannot_be_read_takes_nobody_along(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        # No text: stored without a word, and nobody can read it back.
        sending = [
            a_message(b"first", key="a"),
            a_message(b"damaged", key=3),
            a_message(b"last", key="a"),
        ]
        await engine.broker.sink("orders").send(sending)
        source = engine.broker.source("orders")

        taken = await source.receive(limit=3, wait=0, lease=LEASE)

        first, damaged, last = taken
        assert [one.message for one in (first, last)] == [sending[0], sending[2]]
        assert not first.unreadable
        assert not last.unreadable
        assert "cannot be read" in damaged.unreadable
        kept = (damaged.message.body, *(value for _, value in damaged.message.headers))
        assert any(b"damaged" in part for part in kept)  # nothing of it is lost
        decision = DLQPolicy().before(damaged, clock.now())
        assert isinstance(decision, Bury)
        assert decision.reason is Reason.UNDECODABLE
        assert await source.settle([Acked(one) for one in taken]) == [True] * 3
