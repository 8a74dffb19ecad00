"""A real `dlq serve` process, and what the tests ask of it by the public client."""

import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
from msgspec import structs

from deadletter.client import LeasedItem, QueueClient
from deadletter.queue_server.model import Item, ItemRetry, LeaseQueue, NewItem
from servers.common import free_port

WITHIN = 60.0  # seconds that anything may take on a busy machine
HERE = Path(__file__).parent
SERVE = ("--json", "serve", "--quiet")  # documents of what is a warning, or worse
# Reading everybody's certificates takes longer than most tests; here all is plain.
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Server:
    """`dlq serve` on a port of its own; started again, it has port and store again."""

    def __init__(self, url: str, log: Path) -> None:
        self.address = f"http://127.0.0.1:{free_port()}"
        self.log = log
        self.store = url
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def told(self, event: str) -> list[dict[str, Any]]:
        """What it has logged of an event, each with its level."""
        documents = (
            json.loads(line)
            for line in self.said().splitlines(keepends=True)
            if line.startswith("{") and line.endswith("\n")  # written to its end
        )
        return [one for one in documents if one["event"] == event]

    def start(self, program: str = "-mdeadletter.cli", **environ: str) -> None:
        """Start it and wait until it answers."""
        given = {"DLQ_URL": self.store, "DLQ_SERVE_ACCESS": "off", **environ}
        port = self.address.rpartition(":")[2]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, program, *SERVE, f"--port={port}"],
                env={**os.environ, **given},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        try:
            answer = httpx.get(f"{self.address}/health/live", timeout=WITHIN, verify=PLAIN)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(WITHIN)

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(url: str, log: Path) -> Iterator[Server]:
    """A server that answers, and is gone afterwards."""
    server = Server(url, log)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def until(condition: Callable[[], object]) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {condition!r}"
        time.sleep(0.02)


def client_of(address: str, **how: Any) -> QueueClient:
    """The public client of a server."""
    transport = httpx.AsyncHTTPTransport(verify=PLAIN)
    return QueueClient(address, transport=transport, **how)


class Queues:
    """
    Queues of one test, under names of its own, through the public client.

    What is not said of a queue is generous: nothing dies that was not meant to.
    """

    def __init__(self, client: QueueClient, suffix: str = "") -> None:
        self.client = client
        self.suffix = suffix or token_hex(4)

    def name(self, short: str) -> str:
        return f"{short}-{self.suffix}"

    def options(self, short: str = "jobs", **options: Any) -> LeaseQueue:
        """A queue as it is to be; dead queues go by their short names, too."""
        if dead := options.pop("dead_queue", None):
            options["dead_queue"] = self.name(dead)
        limits = {"lease_timeout": 60.0, "expire_timeout": 3600.0, **options}
        return LeaseQueue(name=self.name(short), **limits)

    async def create(self, short: str = "jobs", **options: Any) -> None:
        await self.client.create_queue(self.options(short, **options))

    async def create_pair(self, *, dead: dict[str, Any] | None = None, **jobs: Any):
        """`jobs`, whose dead queue is `dead`."""
        await self.create("dead", **(dead or {}))
        await self.create("jobs", dead_queue="dead", **jobs)

    async def update(self, short: str, **changes: Any) -> None:
        known = await self.client.queue(self.name(short))
        if dead := changes.get("dead_queue"):
            changes["dead_queue"] = self.name(dead)
        await self.client.update_queue(structs.replace(known, **changes))

    async def info(self, short: str = "jobs") -> LeaseQueue:
        return await self.client.queue(self.name(short))

    async def delete(self, short: str, *, force: bool = False) -> None:
        await self.client.delete_queue(self.name(short), force=force)

    async def produce(self, *payloads: bytes, queue: str = "jobs", **item: Any) -> None:
        items = [NewItem(payload, **item) for payload in payloads]
        await self.client.produce(self.name(queue), items)

    async def lease(self, queue: str = "jobs", wait: float = WITHIN) -> LeasedItem:
        """One item, waited for."""
        (item,) = await self.leases(queue, 1, wait=wait)
        return item

    async def leases(
        self, queue: str = "jobs", limit: int = 1000, *, wait: float = WITHIN
    ) -> tuple[LeasedItem, ...]:
        lent = await self.client.lease(self.name(queue), limit=limit, wait=wait)
        assert lent.partition == 0
        return lent.items

    async def retry(self, *items: LeasedItem, queue: str = "jobs", **how: Any) -> None:
        again = [ItemRetry(item.id, **how) for item in items]
        await self.client.retry(self.name(queue), 0, again)

    async def complete(self, *items: LeasedItem, queue: str = "jobs") -> None:
        await self.client.complete(self.name(queue), 0, [item.id for item in items])

    async def die(self) -> LeasedItem:
        """Lease the first item of `jobs` and call it dead; as it was in its source."""
        item = await self.lease()
        await self.retry(item, dead=True)
        return item

    async def items(self, queue: str = "jobs", partition: int = 0) -> list[Item]:
        """What can be seen of a queue: waiting, leased and scheduled."""
        name = self.name(queue)
        there = await self.client.items(name, partition, limit=65_536)
        later = await self.client.items(name, partition, scheduled=True)
        return [*there, *later]

    async def count(self, queue: str = "jobs") -> int:
        """How many items are in a queue, in all its partitions."""
        stats = await self.client.stats(self.name(queue))
        return sum(one.total + one.scheduled for one in stats)

    async def bring(self, source_id: str | None, payload: bytes = b"x", **where: Any) -> list[Item]:
        """Import one item; what was added."""
        return await self.client.import_items(
            self.name(where.pop("queue", "dead")),
            [imported(source_id, payload, **where.pop("item", {}))],
            **where,
        )


def imported(source_id: str | None, payload: bytes = b"x", **more: Any) -> Item:
    """An item from elsewhere."""
    now = datetime.now(UTC)
    return Item(
        id="elsewhere", payload=payload, source_id=source_id, created_at=now, updated_at=now, **more
    )


def payloads(items: Any) -> list[bytes]:
    return [item.payload for item in items]


def waiting(address: str, queue: str) -> int:
    """How many have asked for items of a queue that have not come yet."""
    answer = httpx.post(
        f"{address}/v1/queue.stats", json={"queue_name": queue}, timeout=WITHIN, verify=PLAIN
    )
    return int(answer.json()["logicalQueues"][0]["lease_waiting"])
