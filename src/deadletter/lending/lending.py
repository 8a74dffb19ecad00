"""
Lending items to clients: produce, lease, complete, retry.

Whoever asks for items waits until there are some. Requests of several clients that
come while a transaction is under way are carried out together in the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from msgspec import Struct

from deadletter.core.errors import BackendError, ConfigError, Conflict
from deadletter.core.events import ItemDeleted, ItemMoved, Observer
from deadletter.core.items import (
    Completion,
    Death,
    Denial,
    Departed,
    Item,
    Leased,
    LeaseQueue,
    NewItem,
    Retrial,
    Wrong,
)
from deadletter.ports import Clock, Dice, ItemStore
from deadletter.runtime.kept_alive import KeptAlive

from .desk import Desk, size_of
from .errors import shutting_down
from .tending import Tending

DESKS: Final = 1024  # kept although nobody waits there
FORGET_EVERY: Final = 3600.0  # seconds between looks at where items came from
PATIENCE: Final = 900.0  # seconds that a request waits for its turn if it does not say
_WHY: Final = {
    Death.ATTEMPTS: "max_attempts are used up",
    Death.EXPIRED: "expire_timeout is over",
    Death.ASKED: "its consumer gave it up",
}


class Counts(Struct, frozen=True):
    """How many requests to one queue wait here, by what they ask for."""

    produce: int = 0
    lease: int = 0
    complete: int = 0
    under_way: int = 0


class Lending:
    """
    The queue server without its wire.

    Use it as a context manager: within, what falls due is seen to. Whatever the store
    says no to is raised; a request is applied whole or not at all.
    """

    def __init__(
        self, store: ItemStore, *, clock: Clock, dice: Dice, observe: Observer
    ) -> None:
        self.store = store
        self.clock = clock
        self._observe = observe
        self._desks: dict[str, Desk] = {}
        self._is_closed = False
        self._tending = Tending(
            store,
            clock=clock,
            dice=dice,
            observe=observe,
            on_ready=self._ready,
            on_departed=self._departed,
        )
        loops = {"tending": self._tending.run, "forgetting": self._forget}
        self._loops = {
            name: KeptAlive(
                name, partial(_ended_by_us, run), clock=clock, observe=observe
            )
            for name, run in loops.items()
        }
        self._tasks: list[asyncio.Task[bool]] = []

    async def __aenter__(self) -> Self:
        self.store.on_ready(self._told)
        never = asyncio.Event()  # they are cancelled
        for loop in self._loops.values():
            self._tasks.append(asyncio.create_task(loop.run(never)))
        await asyncio.sleep(0)  # they have begun
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def ready(self) -> str | None:
        """Why nobody sees to what falls due; None while somebody does."""
        for name, loop in self._loops.items():
            if loop.trouble is not None:
                return f"{name}: {loop.trouble}"
        return None

    async def stop(self) -> None:
        """
        Send away who waits, finish what is under way, and take nothing new.

        May be called more than once, and early: before a server waits for its
        requests to end.
        """
        self._is_closed = True
        desks = list(self._desks.values())
        for desk in desks:
            desk.line.close()
        for desk in desks:
            await desk.drained()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    async def produce(
        self, queue: str, items: Sequence[NewItem], *, within: float = PATIENCE
    ) -> None:
        """Add items; they are durable when this returns."""
        gathering = self._desk(queue).produce
        await gathering.ask(items, size=size_of(items), within=within)
        for item in items:
            if item.enqueue_at is not None:
                self._tending.due(item.enqueue_at)
        self._tending.stir()

    def lease(
        self, queue: str, client: str, want: int, *, within: float
    ) -> asyncio.Future[Leased]:
        """
        Wait for items: at least one, at most `want`.

        TryAgain when there were none in time. Cancel what this returns when the client
        has gone.
        """
        return self._desk(queue).line.join(client, want, within=within)

    async def complete(
        self, queue: str, completion: Completion, *, within: float = PATIENCE
    ) -> None:
        """Forget leased items; ConfigError or Conflict say why it cannot be."""
        gathering = self._desk(queue).complete
        size = len(completion.ids)
        denial = await gathering.ask(completion, size=size, within=within)
        if denial is not None:
            raise _error(denial, completion.partition)

    async def retry(
        self, queue: str, retrial: Retrial, *, within: float = PATIENCE
    ) -> None:
        """Give leased items back; ConfigError or Conflict say why it cannot be."""
        gathering = self._desk(queue).retry
        size = len(retrial.items)
        answer = await gathering.ask(retrial, size=size, within=within)
        if isinstance(answer, Denial):
            raise _error(answer, retrial.partition)
        for departed in answer:
            self._departed(departed)
        for again in retrial.items:
            if again.retry_at is not None:
                self._tending.due(again.retry_at)
        self._tending.stir()
        self._ready(queue)

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """Add items as they are; what is there now."""
        there = await self.store.import_items(queue, partition, items)
        self._tending.stir(0.0)
        self._ready(queue)
        return there

    async def update_queue(self, queue: LeaseQueue) -> None:
        """Change a queue's options."""
        await self.store.update_queue(queue)
        self._tending.stir(0.0)

    async def delete_queue(self, name: str, *, force: bool) -> int:
        """Delete a queue; how many items went. Whoever waits for some is told."""
        gone = await self.store.delete_queue(name, force=force)
        self._ready(name)
        return gone

    def counts(self, queue: str) -> Counts:
        """How many requests to a queue wait here."""
        desk = self._desks.get(queue)
        if desk is None:
            return Counts()
        return Counts(
            produce=desk.produce.waiting,
            lease=desk.line.waiting,
            complete=desk.complete.waiting,
            under_way=desk.under_way,
        )

    def look(self, queue: str) -> None:
        """Ask the store again on behalf of those who wait for a queue."""
        self._tending.stir(0.0)
        self._ready(queue)

    async def _forget(self) -> None:
        while True:
            with suppress(BackendError):  # it can wait, and tending tells of it
                while await self.store.forget():
                    pass
            await asyncio.sleep(FORGET_EVERY)

    def _desk(self, queue: str) -> Desk:
        if self._is_closed:
            raise shutting_down()
        desk = self._desks.get(queue)
        if desk is None:
            if len(self._desks) >= DESKS:  # names are the clients' choice
                self._desks = {n: d for n, d in self._desks.items() if not d.is_idle}
            desk = self._desks[queue] = Desk(queue, self.store, self._tending.due)
        return desk

    def _ready(self, queue: str) -> None:
        desk = self._desks.get(queue)
        if desk is not None and not self._is_closed:
            desk.line.wake()

    def _told(self, queue: str) -> None:
        """The store says so; what lies there may have deadlines we know nothing of."""
        self._ready(queue)
        self._tending.stir()

    def _departed(self, departed: Departed) -> None:
        queue, item, death = departed.queue, departed.id, departed.death.value
        if departed.to is None:
            text = f"{_WHY[departed.death]}, and {queue} has no dead_queue"
            self._observe(
                ItemDeleted(mailbox=queue, item_id=item, death=death, text=text)
            )
            return
        self._observe(
            ItemMoved(mailbox=queue, item_id=item, death=death, to=departed.to)
        )
        self._ready(departed.to)


async def _ended_by_us(run: Callable[[], Awaitable[None]], _: asyncio.Event) -> None:
    await run()


def _error(denial: Denial, partition: int) -> ConfigError | Conflict:
    if denial.wrong is Wrong.NOT_LEASED:
        return Conflict(f"item is not leased; {denial.id!a} has to be leased first")
    if denial.wrong is Wrong.PARTITION:
        return ConfigError(f"invalid partition; there is no partition {partition}")
    return ConfigError(f"invalid id; there is no item {denial.id!a}")
