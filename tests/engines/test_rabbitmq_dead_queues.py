"""Replayed copies that RabbitMQ itself moves to a dead queue, by a policy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from uuid import uuid4

import aiormq
import pytest

from deadletter import App, DeadLetter
from deadletter.core.events import Event, HeadersIgnored
from deadletter.core.ids import letter_id
from deadletter.core.message import Lineage, Message
from deadletter.core.signing import sign_lineage
from deadletter.ports import QueueOptions, Sealed
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from deadletter.wiring.foreign import opened_foreign
from engines.test_rabbitmq_policies import ManagedRabbitMQ, broker, managed
from intake.rig import drained, letters

__all__ = ["broker", "managed"]

WITHIN = 30.0
_run = uuid4().hex[:6]
_numbers = count(1)


class Shop:
    """A mailbox whose queue has a dead-letter exchange, and a consumer behind it."""

    def __init__(self, server: ManagedRabbitMQ, dead: str, office: Path) -> None:
        self.orders = f"orders-{_run}-{next(_numbers)}"
        self.dead = dead.format(mailbox=self.orders)
        self.seen: list[DeadLetter] = []
        self.events: list[Event] = []
        self.app = App(server.url, office=f"sqlite:///{office}", observe=self.events.append)
        self.app.letter_handler(self.dead, wait=1.0)(self.seen.append)
        self._server = server

    async def make(self, *, has_options: bool = False) -> None:
        """Make both queues, and have the broker move what is rejected."""
        broker = (await self.app.engine()).broker
        await broker.create(QueueOptions(name=self.dead))
        dead = self.dead if has_options else None
        await broker.create(QueueOptions(name=self.orders, dead_queue=dead))
        moves = {"dead-letter-exchange": "", "dead-letter-routing-key": self.dead}
        name = f"policies/%2F/few-{self.orders}"
        self._server.put(name, pattern=f"^{self.orders}$", definition=moves)

    async def send_copy(self, to: str) -> Lineage:
        """Send a replayed copy as the office does."""
        broker = (await self.app.engine()).broker
        assert isinstance(broker, Sealed)
        letter = letter_id(self.orders, "", "m-1")
        lineage = Lineage(letter_id=letter, generation=1, campaign="c")
        now = SystemClock().now()
        message = Message(id="m-1", body=b"body", sent_at=now, lineage=lineage)
        copy = sign_lineage(message, self.orders, broker.seal.keys)
        await broker.sink(to).send([copy])
        assert copy.lineage is not None
        return copy.lineage

    async def reject(self) -> None:
        """Reject the copy, as a consumer that is not ours does."""
        connection = await aiormq.connect(self._server.url)
        channel = await connection.channel()
        got = await channel.basic_get(self.orders)
        assert got.delivery_tag is not None
        await channel.basic_reject(got.delivery_tag, requeue=False)
        await connection.close()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        working = asyncio.create_task(self.app.work(stop, watchdog=None))
        try:
            yield
        finally:
            stop.set()
            await working

    def ignored(self) -> list[str]:
        return [e.what for e in self.events if isinstance(e, HeadersIgnored)]


@pytest.mark.parametrize(("dead", "has_options"), [("{mailbox}-dlq", False), ("graveyard", True)])
async def test_a_copy_that_rabbitmq_moved_leads_back_to_its_letter(
    broker: ManagedRabbitMQ, tmp_path: Path, dead: str, has_options: bool
) -> None:
    shop = Shop(broker, dead, tmp_path / "office.db")
    async with shop.app:
        await shop.make(has_options=has_options)
        lineage = await shop.send_copy(shop.orders)
        await shop.reject()
        async with shop.at_work():
            await eventually(lambda: shop.seen, within=WITHIN)

    assert [letter.message.lineage for letter in shop.seen] == [lineage]
    assert shop.ignored() == []


async def test_a_copy_that_somebody_put_into_another_dead_queue_leads_nowhere(
    broker: ManagedRabbitMQ, tmp_path: Path
) -> None:
    shop = Shop(broker, "payments-dlq", tmp_path / "office.db")
    async with shop.app:
        await shop.make()
        await shop.send_copy(shop.dead)
        async with shop.at_work():
            await eventually(lambda: shop.seen, within=WITHIN)

    assert [letter.message.lineage for letter in shop.seen] == [None]
    assert shop.ignored() == ["lineage"]


async def test_a_drain_finds_the_letter_of_a_copy_by_its_id(
    broker: ManagedRabbitMQ, tmp_path: Path
) -> None:
    shop = Shop(broker, "{mailbox}-dlq", tmp_path / "office.db")
    office = MemoryEngine(clock=SystemClock(), dice=SystemDice())
    async with shop.app, opened_foreign(broker.url) as foreign:
        await shop.make()
        lineage = await shop.send_copy(shop.orders)
        await shop.reject()

        [letter] = await drained(foreign.drain(shop.dead), office)

    assert letter.id == lineage.letter_id
    assert letter.head.source == shop.orders
    assert len(await letters(office)) == 1
