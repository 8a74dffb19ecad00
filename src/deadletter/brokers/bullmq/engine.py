"""The engine on queues of BullMQ."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from deadletter.brokers.redis_common.address import ServerOptions, address_of, url_form
from deadletter.brokers.redis_common.job_envelope import sent_at
from deadletter.brokers.redis_common.mailboxes import (
    Change,
    Listed,
    MailboxClient,
    Mailboxes,
    MailboxRegistry,
    MailboxSink,
    MailboxSource,
    Settling,
    encoded,
)
from deadletter.brokers.redis_common.script_runner import Argument, Now, ScriptRunner, server_time
from deadletter.brokers.redis_common.server import connect_server, inspect_server
from deadletter.core.errors import ConfigError
from deadletter.core.message import Delivery, Message
from deadletter.kit import MailboxEngine
from deadletter.ports.broker import Note, QueueInfo, QueueOptions
from deadletter.ports.features import Durability, Features

from .jobs import Job, Retention, added_at, arguments, count_release, deliveries, read_retention
from .schedulers import ScheduledJobs
from .scripts import NOTE, PURGE, REGISTRY, VERBS, Keys

FEATURES: Final = Features(
    engine="bullmq",
    durability=Durability.POWER_SAFE,  # with appendfsync always
    due_order=False,  # what was delayed lines up when it is due, behind all others
    tallies=False,  # producers and workers of BullMQ count nothing
    keeps_results=True,
    keeps_letters=False,
    keeps_ledger=False,
)


class Registry(MailboxRegistry):
    """The list of queues with one prefix that were used through us; BullMQ ignores it."""

    script = REGISTRY

    def __init__(self, runner: ScriptRunner, keys: Keys) -> None:
        super().__init__(runner, keys.registry)
        self.keys = keys

    async def join(self, name: str) -> None:
        """Add a queue to the list if it is missing."""
        await self._ask("join", name, encoded(QueueOptions(name=name)))

    async def change(self, change: Change) -> None:
        """Change options; start over if they were changed meanwhile."""
        said = 0
        while not said:
            version, listed = await self._read()
            said = await self._ask("change", version, *_pairs(change(listed)))

    async def leave(self, name: str, change: Change) -> int:
        """Delete a queue and change others with it; return how many messages it had."""
        said = -1
        while said < 0:
            version, listed = await self._read()
            others = {who: what for who, what in change(listed).items() if who != name}
            pairs, keys = _pairs(others), self.keys.queue(name)
            said = await self._runner.timed(PURGE, keys, version, name, *pairs)
        return said


def _pairs(changed: Listed) -> list[str | bytes]:
    return [part for name, options in changed.items() for part in (name, encoded(options))]


class Queue(MailboxClient):
    """Access to one queue."""

    verbs = VERBS

    def __init__(
        self,
        runner: ScriptRunner,
        registry: Registry,
        name: str,
        retention: Retention,
        attempt_field: str = "",
    ) -> None:
        keys, signals = registry.keys.queue(name), registry.keys.signals(name)
        usual = retention.completed, retention.failed
        settling = Settling(
            self.ask,
            VERBS.settle,
            *usual,
            with_ends=True,
            details=lambda released: count_release(released, attempt_field),
        )
        super().__init__(runner, registry, name, keys=keys, signals=signals, settling=settling)
        self.scheduled = ScheduledJobs(self)
        self.worker = registry.keys.worker(name)

    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """Return the deliveries of a claim, from the answer of the script."""
        jobs = [Job(*job) for job in said[0]]
        self.scheduled.note(jobs, first)
        return deliveries(self.name, token, jobs)


class BullSink(MailboxSink):
    """Sink of one queue."""

    def arguments(self, messages: Sequence[Message]) -> list[Argument]:
        """Return every message as a job, one after the other."""
        return [part for message in messages for part in arguments(self.mailbox, message)]


class BullSource(MailboxSource):
    """Source of one queue."""

    # A worker of BullMQ that dies may take a marker with it: BullMQ polls at this interval.
    longest: ClassVar[float] = 5.0

    def __init__(self, queue: Queue, features: Features) -> None:
        super().__init__(queue, features)
        self._queue = queue

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        self._queue.scheduled.start()  # jobs that could not be added before
        await self._queue.runner.appear(self._queue.worker)
        return await super().receive(limit=limit, wait=wait, lease=lease, alone=alone)


class BullBroker(Mailboxes[Queue]):
    """All queues with one prefix."""

    def __init__(
        self,
        runner: ScriptRunner,
        registry: Registry,
        features: Features,
        retention: Retention,
        attempt_field: str = "",
    ) -> None:
        def new_queue(name: str) -> Queue:
            return Queue(runner, registry, name, retention, attempt_field)

        super().__init__(runner, new_queue, registry, features)

    def source(self, mailbox: str) -> BullSource:
        """Return the source of a queue, which is added to the list if it is missing."""
        return BullSource(self._mailbox(mailbox), self.features)

    def sink(self, mailbox: str) -> BullSink:
        """Return the sink of a queue, which is added to the list if it is missing."""
        return BullSink(self._mailbox(mailbox))

    async def note(self, mailbox: str, notes: Sequence[Note]) -> None:
        """Write progress and log lines of jobs that are still ours."""
        words: list[Argument] = []
        for note in notes:
            kind, value = (
                ("log", note.line) if note.progress is None else ("progress", note.progress)
            )
            words += *note.delivery.receipt, kind, value or ""
        await self._mailbox(mailbox).ask(NOTE, *words)

    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """Return the counts of a queue, and when the first job in line was sent."""
        ready, delayed, claimed, suspects, envelope, added = said
        return QueueInfo(
            options=options,
            ready=ready,
            delayed=delayed,
            claimed=claimed,
            suspects=suspects,
            oldest_at=sent_at(envelope) or added_at(added),
        )


class Options(ServerOptions, frozen=True, kw_only=True):
    """Parameters of the URLs; how long to keep ended jobs is JSON, as BullMQ has it."""

    prefix: str = "bull"  # of all keys, as in BullMQ's own options
    remove_on_complete: str = "false"
    remove_on_fail: str = "false"
    attempt_field: str = ""  # of the data, in which attempts are counted


URL: Final = url_form("BullMQ", Options, "bullmq")


class BullEngine(MailboxEngine):
    """Queues of BullMQ on one server. It keeps neither letters nor a ledger."""

    def __init__(
        self,
        runner: ScriptRunner,
        keys: Keys,
        features: Features,
        retention: Retention,
        attempt_field: str = "",
    ) -> None:
        broker = BullBroker(runner, Registry(runner, keys), features, retention, attempt_field)
        super().__init__(broker, features)
        self._runner = runner

    async def close(self) -> None:
        """Finish the tasks in progress and close all connections."""
        await self._runner.close()


async def connect(url: str, *, now: Now = server_time) -> BullEngine:
    """Open the engine of a URL; tests pass a clock as `now`."""
    said = URL.read(url)
    retention = read_retention(said.options.remove_on_complete, said.options.remove_on_fail)
    address, keys = address_of(said), Keys(said.options.prefix)
    server = await inspect_server(address)
    if server.in_cluster:
        raise ConfigError(
            f"{address.where} is a node of a cluster, which bullmq:// does not support: use a"
            " single server, or redis://"
        )
    features = replace(FEATURES, durability=server.durability)
    runner = connect_server(address, now)
    return BullEngine(runner, keys, features, retention, said.options.attempt_field)
