"""A gateway, its worker and the system downstream, on real servers, for one test."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

import courier
from courier import api, downstream, worker
from courier.api import PATH
from courier.downstream import Fault, Stand
from courier.settings import DLQ, MAIN, Settings, load, profile
from courier.signatures import signed_headers
from deadletter import App, DeadLetter, State
from deadletter.core.events import Event, Succeeded
from deadletter.server.listener import HttpServer, listen, url_of
from deadletter.settings import Serve
from deadletter.testing.fakes import eventually

Change = dict[str, Any]

EXAMPLES = str(Path(courier.__file__).parent.parent)
SECRET = "sixteen letters or more"
PAYLOAD = b'{"shipmentId": "shp_456", "orderId": "ord_789", "weight": 1.10}'
QUICK = {
    "RETRY_MAX_ATTEMPTS": "3",
    "RETRY_BACKOFF_BASE_MS": "10",
    "DOWNSTREAM_TIMEOUT_MS": "2000",
    "WORKER_LEASE_SECONDS": "30",
}


@asynccontextmanager
async def serving(apps: Mapping[socket.socket, Any]) -> AsyncIterator[None]:
    """ASGI applications on real ports; all start and stop at the same time."""
    servers = [HttpServer(app, Serve(grace=2)) for app in apps.values()]
    running = [
        asyncio.create_task(server.serve([listener]))
        for server, listener in zip(servers, apps, strict=True)
    ]
    try:
        await eventually(lambda: all(server.started for server in servers), within=10)
        yield
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*running)
        for listener in apps:
            listener.close()


def an_event(event_id: str = "evt_123", **more: object) -> bytes:
    """What a courier posts; its payload has spaces that must survive."""
    event = {
        "eventId": event_id,
        "eventType": "shipment.status.updated",
        "occurredAt": "2026-02-26T12:00:00Z",
        "source": "courier-x",
        "payload": msgspec.Raw(PAYLOAD),
        **more,
    }
    return msgspec.json.encode({k: v for k, v in event.items() if v is not None})


def states_in(changes: list[Change]) -> list[str]:
    """The states that documents came to, in the order they did."""
    whole = [one.get("fullDocument") or {} for one in changes]
    parts = [one.get("updateDescription", {}) for one in changes]
    told = [
        part.get("updatedFields", {}).get("state") or document.get("state")
        for part, document in zip(parts, whole, strict=True)
    ]
    return [state for state in told if state]


class Rig:
    """All of it. The worker runs from `work` until `rest`."""

    def __init__(self, environ: Mapping[str, str], url: str) -> None:
        self.environ = dict(environ)
        self.settings: Settings = load(environ)
        self.profile = profile(environ)
        self.stand = Stand()
        self.events: list[Event] = []
        self.now = time.time  # the gateway's clock, which tests may set
        self.url = url
        self.client = httpx.AsyncClient()
        self._mongo: AsyncMongoClient[dict[str, Any]] | None = None
        self.office = App(
            self.settings.queue_url,
            office=self.settings.office_url,
            office_durability="none",  # tests of the gateway alone need no MongoDB
        )
        self._stop = asyncio.Event()
        self._working: asyncio.Task[int] | None = None
        self._processes: list[asyncio.subprocess.Process] = []

    @property
    def db(self) -> AsyncDatabase[dict[str, Any]]:
        """The database with `processed_events` and `dead_letter_events`."""
        if self._mongo is None:
            self._mongo = AsyncMongoClient(self.settings.mongodb_url, tz_aware=True)
        return self._mongo.get_default_database()

    def tell_time(self) -> float:
        return self.now()

    async def post(
        self, body: bytes, *, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """What the gateway says to a signed body; `headers` change what is signed."""
        signed = signed_headers(SECRET, int(self.now()), body)
        told = {"content-type": "application/json", **signed, **(headers or {})}
        return await self.client.post(self.url + PATH, content=body, headers=told)

    async def report(self, event_id: str = "evt_123", **more: object) -> None:
        """Post an event that is accepted."""
        answer = await self.post(an_event(event_id, **more))
        assert answer.status_code == 202, answer.text

    def fault(self, event_id: str = "*", **how: Any) -> None:
        """Let the system downstream fail."""
        self.stand.faults.append(Fault(event_id=event_id, **how))

    async def work(self) -> Self:
        """Start the worker."""
        self._stop = asyncio.Event()
        self._working = asyncio.create_task(
            worker.work(self.settings, self.profile, stop=self._stop, observe=self.events.append)
        )
        return self

    async def rest(self) -> None:
        """Stop the worker, and hear how it ended."""
        if self._working is not None:
            self._stop.set()
            working, self._working = self._working, None
            assert await working == 0

    def fates(self) -> list[str]:
        """What became of messages that left the queue without a letter."""
        return [one.fate for one in self.events if isinstance(one, Succeeded)]

    async def ledger(self, key: str = "courier-x:evt_123") -> dict[str, Any]:
        """Return the entry of a key as the worker sees it; empty if there is none."""
        entries = self.db.get_collection("processed_events", read_concern=ReadConcern("majority"))
        return await entries.find_one({"key": key}) or {}

    async def is_at(self, state: str, key: str = "courier-x:evt_123") -> bool:
        return (await self.ledger(key)).get("state") == state

    async def until(self, state: str, key: str = "courier-x:evt_123") -> None:
        """Wait until the ledger says so."""
        await eventually(lambda: self.is_at(state, key), within=20)

    async def letters(self) -> list[DeadLetter]:
        """All of the office, oldest death first."""
        store = await self.office.letters()
        heads = (await store.find(limit=100)).heads
        return list(await store.get([head.id for head in reversed(heads)]))

    async def letter(self) -> DeadLetter:
        (letter,) = await self.letters()
        return letter

    async def until_letter(self, state: State) -> DeadLetter:
        """Wait until the only letter is in this state."""

        async def is_so() -> bool:
            return [one.head.state for one in await self.letters()] == [state]

        await eventually(is_so, within=20)
        return await self.letter()

    async def queued(self) -> dict[str, Any]:
        """The payload of the only job in the main queue, as it stands on the server."""
        client = (await self.office.engine()).broker.source(MAIN)._client  # type: ignore[attr-defined]
        stored = await client.runner.command("HGET", f"{client.keys[1]}1", "data")
        return dict(msgspec.json.decode(stored))

    async def waiting(self, mailbox: str = MAIN) -> list[dict[str, Any]]:
        """Take out what waits in a queue, as JSON."""
        broker = (await self.office.engine()).broker
        taken = await broker.source(mailbox).receive(limit=100, wait=0, lease=60)
        return [msgspec.json.decode(one.message.body) for one in taken]

    async def copies(self) -> list[dict[str, Any]]:
        """Take out what waits in the dead-letter queue."""
        return await self.waiting(DLQ)

    @asynccontextmanager
    async def watching(self, *collections: str) -> AsyncIterator[list[Change]]:
        """What is written to collections meanwhile, in the order it is."""
        changes: list[Change] = []
        wanted = [{"$match": {"ns.coll": {"$in": collections}}}]
        async with await self.db.watch(wanted) as stream:

            async def listen() -> None:
                async for change in stream:
                    changes.append(change)  # noqa: PERF401 -- seen while it grows

            listening = asyncio.create_task(listen())
            try:
                yield changes
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    async def start(self, *command: str, **environ: str) -> asyncio.subprocess.Process:
        """A process of the system, with this environment; it is ended with the rig."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            env={**os.environ, "PYTHONPATH": EXAMPLES, **self.environ, **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._processes.append(process)
        return process

    async def command(self, module: str, *arguments: str, **environ: str) -> str:
        """Return the output of a command that ends well."""
        process = await self.start("-m", module, *arguments, **environ)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    async def close(self) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()
        await self.rest()
        await self.office.close()
        await self.client.aclose()
        if self._mongo is not None:
            await self._mongo.close()


@asynccontextmanager
async def rigged(queue_url: str, mongodb_url: str, **environ: str) -> AsyncIterator[Rig]:
    """Gateway and downstream, running; the worker is started by the test."""
    below, above = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    rig = Rig(
        {
            "QUEUE_URL": queue_url,
            "MONGODB_URL": mongodb_url,
            "COURIER_SECRET": SECRET,
            "DOWNSTREAM_URL": f"{url_of(below)}/events",
            **QUICK,
            **environ,
        },
        url_of(above),
    )
    intake = api.intake_of(rig.settings, rig.profile)
    gateway = api.build(rig.settings, intake, rig.tell_time)
    async with serving({below: downstream.build(rig.stand), above: gateway}):
        try:
            yield rig
        finally:
            await rig.close()
