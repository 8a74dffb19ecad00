"""
`dlq serve` in a process of its own, and a client that costs as little as it can.

The client is a few lines over a socket: what is measured is to be the server. Bodies
are protobuf; each connection has one request under way at a time.
"""

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contest import BENCH
from deadletter.queue_server import querator_pb2 as pb
from deadletter.testing.fakes import eventually
from prompt import rss
from workload import Measured, must_be

QUEUE, DEAD = "bench", "dead"
START_WITHIN = 60.0  # seconds


class DlqServe:
    """A server process."""

    def __init__(self, folder: Path, url: str) -> None:
        self._log = folder / "serve.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deadletter.cli", "serve", "--port=0", "--quiet"],
                cwd=BENCH,
                env={**os.environ, "DLQ_URL": url, "DLQ_SERVE_ACCESS": "off"},
                stdout=log,
                stderr=log,
            )

    async def port(self) -> int:
        """Where it answers, once it does."""
        deadline = time.monotonic() + START_WITHIN
        while "http://127.0.0.1:" not in (said := self._log.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"dlq serve does not answer: {said[-2000:]}")
            await asyncio.sleep(0.05)
        digits = said.partition("http://127.0.0.1:")[2]
        return int("".join(c for c in digits[:6] if c.isdigit()))

    def rss(self) -> float:
        """Megabytes it occupies."""
        return rss(self._process.pid)

    def cpu_seconds(self) -> float:
        """Processor time it has used so far; 0 where nobody tells."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().split()
        except OSError:
            return 0.0
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Stop it and wait for that."""
        self._process.terminate()
        self._process.wait(60)


class Connection:
    """One connection, kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def call(self, name: str, message: Any, answer: Any = pb.Reply) -> Any:
        """Make a call; anything but 200 ends the run."""
        self.ask(name, message)
        return await self.told(answer)

    def ask(self, name: str, message: Any) -> None:
        """Send a request."""
        body = message.SerializeToString()
        head = (
            f"POST /v1/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            "Content-Type: application/protobuf\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)

    async def told(self, answer: Any) -> Any:
        """The answer to what was asked."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{head[:40]!r} {body[:500]!r}")
        return answer.FromString(body)

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def connect(port: int) -> Connection:
    """Another connection."""
    return Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**26))


class Load:
    """What clients do to one server."""

    def __init__(self, server: DlqServe, port: int) -> None:
        self._server = server
        self.port = port

    async def create(self) -> None:
        """The queues."""
        connection = await connect(self.port)
        long = {"lease_timeout": "1h", "expire_timeout": "24h"}
        dead = pb.QueueInfo(queue_name=DEAD, **long)
        await connection.call("queues.create", dead)
        queue = pb.QueueInfo(queue_name=QUEUE, dead_queue=DEAD, **long)
        await connection.call("queues.create", queue)
        connection.close()

    async def produce(self, ready: Sequence[bytes], batch: int, clients: int) -> Measured:
        """Everything, in batches."""
        chunks = [ready[at : at + batch] for at in range(0, len(ready), batch)]

        async def work(connection: Connection, number: int) -> int:
            done = 0
            for chunk in chunks[number::clients]:
                items = [pb.ProduceItem(bytes=one) for one in chunk]
                asked = pb.QueueProduceRequest(queue_name=QUEUE, request_timeout="1m", items=items)
                await connection.call("queue.produce", asked)
                done += len(chunk)
            return done

        return await self._measured(len(ready), clients, work)

    async def lease(self, n: int, batch: int, clients: int) -> tuple[Measured, Any]:
        """Everything that is there, in batches; what was lent, by client."""
        lent: list[tuple[int, list[str]]] = []
        left = n // batch

        async def work(connection: Connection, number: int) -> int:
            nonlocal left
            done = 0
            asked = pb.QueueLeaseRequest(
                queue_name=QUEUE,
                batch_size=batch,
                client_id=f"client-{number}",
                request_timeout="1m",
            )
            while left > 0:
                left -= 1
                got = await connection.call("queue.lease", asked, pb.QueueLeaseResponse)
                lent.append((got.partition, [item.id for item in got.items]))
                done += len(got.items)
            return done

        return await self._measured(n, clients, work), lent

    async def complete(self, lent: Any, n: int, clients: int) -> Measured:
        """Everything that was lent, in the batches it came in."""

        async def work(connection: Connection, number: int) -> int:
            done = 0
            for partition, ids in lent[number::clients]:
                asked = pb.QueueCompleteRequest(
                    queue_name=QUEUE, partition=partition, request_timeout="1m", ids=ids
                )
                await connection.call("queue.complete", asked)
                done += len(ids)
            return done

        return await self._measured(n, clients, work)

    async def _measured(
        self, n: int, clients: int, work: Callable[[Connection, int], Coroutine[Any, Any, int]]
    ) -> Measured:
        connections = [await connect(self.port) for _ in range(clients)]
        cpu, began = self._server.cpu_seconds(), time.perf_counter()
        done = await asyncio.gather(*(work(one, number) for number, one in enumerate(connections)))
        seconds = time.perf_counter() - began
        for connection in connections:
            connection.close()
        must_be(sum(done), n, "items")
        return Measured(n, seconds, self._server.cpu_seconds() - cpu)


async def woken(port: int, how: str) -> float:
    """Milliseconds from the cause to the answer of somebody who waits."""
    cause, waiting = await connect(port), await connect(port)
    await cause.call("queue.produce", _one(QUEUE))
    lease = _lease(QUEUE, "cause")
    leased = await cause.call("queue.lease", lease, pb.QueueLeaseResponse)
    item = leased.items[0].id
    where = DEAD if how == "dead-letter move" else QUEUE
    waiting.ask("queue.lease", _lease(where, "waiting"))
    await asyncio.sleep(0.05)
    retry = pb.RetryItem(id=item, dead=how == "dead-letter move")
    began = time.perf_counter()
    if how == "produce":
        await cause.call("queue.produce", _one(QUEUE))
    else:
        if how == "retry falling due":
            due = datetime.now(UTC) + timedelta(milliseconds=200)
            retry.retry_at.FromDatetime(due)
            began += 0.2
        asked = pb.QueueRetryRequest(queue_name=QUEUE, partition=leased.partition, items=[retry])
        await cause.call("queue.retry", asked)
    got = await waiting.told(pb.QueueLeaseResponse)
    took = (time.perf_counter() - began) * 1000
    await _complete(waiting, where, got)
    if how == "produce":
        await _complete(cause, QUEUE, leased)
    cause.close()
    waiting.close()
    return took


@asynccontextmanager
async def idle_leases(port: int, count: int) -> AsyncIterator[None]:
    """So many clients that wait for items of a queue without any."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    connections = []
    for number in range(count):
        connections.append(await connect(port))
        connections[-1].ask("queue.lease", _lease(QUEUE, f"idle-{number}", "15m"))

    async def all_wait() -> bool:
        return await _waiting(port) == count

    await eventually(all_wait, within=300.0)
    yield
    for connection in connections:
        connection.close()


async def _waiting(port: int) -> int:
    connection = await connect(port)
    asked = pb.QueueStatsRequest(queue_name=QUEUE)
    stats = await connection.call("queue.stats", asked, pb.QueueStatsResponse)
    connection.close()
    return int(stats.logical_queues[0].lease_waiting)


async def _complete(connection: Connection, queue: str, got: Any) -> None:
    asked = pb.QueueCompleteRequest(
        queue_name=queue,
        partition=got.partition,
        request_timeout="1m",
        ids=[item.id for item in got.items],
    )
    await connection.call("queue.complete", asked)


def _one(queue: str) -> Any:
    items = [pb.ProduceItem(utf8="one")]
    return pb.QueueProduceRequest(queue_name=queue, request_timeout="1m", items=items)


def _lease(queue: str, client: str, within: str = "1m") -> Any:
    return pb.QueueLeaseRequest(
        queue_name=queue, batch_size=1, client_id=client, request_timeout=within
    )
