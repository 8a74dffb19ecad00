"""The relayer in pieces: what is sent, what is on its queues, what it wrote down."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    nullcontext,
)
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import uvicorn
from aiobotocore.session import get_session
from msgspec.structs import replace

from deadletter import App, DeadLetter
from deadletter.core.campaign import ReplayItem
from deadletter.core.events import Event
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from relayer.api import build
from relayer.consumer import BOTH, MAIN, opened_consumers
from relayer.database import Database, open_database
from relayer.queues import make_queues, opened_broker
from relayer.settings import DEAD_QUEUE, QUEUE, Settings, read
from relayer.table import Table
from servers import Server
from servers.sqs import Sqs

KEYS = {
    "AWS_ACCESS_KEY_ID": Sqs.access_key,
    "AWS_SECRET_ACCESS_KEY": Sqs.secret_key,
    "AWS_REGION": Sqs.region,
}
SOON = 60.0  # seconds: more than anything here takes
_numbers = count(1)
_run = uuid4().hex[:6]
_loader = get_session().get_component("data_loader")


def quick_session() -> Any:
    """What the library reads about Amazon's services is read once for all of them."""
    session = get_session()
    session.register_component("data_loader", _loader)
    return session


def settings_for(server: Server, stub_url: str, place: Path) -> dict[str, str]:
    """The environment of a service with queues that nobody else uses."""
    prefix = f"t{_run}-{next(_numbers)}-"
    base = f"{server.url}/000000000000/{prefix}"
    return {
        **KEYS,
        "SQS_QUEUE_URL": f"{base}{QUEUE}",
        "SQS_DLQ_URL": f"{base}{DEAD_QUEUE}",
        "DLQ_POLL_INTERVAL_MS": "50",
        "DATABASE_URL": f"sqlite:///{place}/relayer.db",
        "DLQ_OFFICE": f"sqlite:///{place}/office.db",
        "RELAYER_URL": stub_url,
        "RETRY_DELAY_MS": "0",
        "REPLAY_DELAY_MS": "0",
        "METRICS_INTERVAL_MS": "0",
        "WEBHOOK_TOKEN": "secret",
    }


def address() -> str:
    """An address that no other test sends anything to."""
    return f"0x{uuid4().hex}{'0' * 8}"


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


class Stub:
    """The relayer below, from the side of those who tell it to fail."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def fail(self, to: str | None = None, **fault: object) -> None:
        answer = await self._client.post("/failures", json={"to": to, **fault})
        answer.raise_for_status()

    async def recover(self) -> None:
        (await self._client.delete("/failures")).raise_for_status()

    async def requests(self, transaction_id: str) -> int:
        answer = await self._client.get("/requests")
        return int(answer.json().get(transaction_id, 0))


class Quiet(uvicorn.Server):
    """Uvicorn, with its hands off our signals."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """The API on a port of its own; its URL."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        api = build(settings)
        server = Quiet(uvicorn.Config(api, log_config=None, access_log=False))
        serving = asyncio.create_task(server.serve([listener]))
        await eventually(lambda: server.started or serving.done(), within=SOON)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


def hasty(settings: Settings) -> Settings:
    """Settings with a short long poll: stopping takes as long as that."""
    consumer = settings.profile.dlq_consumer
    assert consumer is not None
    short = replace(consumer, wait=0.3)
    return replace(settings, profile=replace(settings.profile, dlq_consumer=short))


class Relay:
    """One relayer: its table, its queues, and the consumers when they are wanted."""

    def __init__(
        self, environment: dict[str, str], raw: Any, stub: Stub, database: Database
    ) -> None:
        self.environment = environment
        self.settings = read(environment)
        self.raw = raw
        self.stub = stub
        self.database = database
        self.table = Table(database, SystemClock())
        self.events: list[Event] = []
        self.api: httpx.AsyncClient
        self._app: App | None = None

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, environment: dict[str, str], raw: Any, stub: Stub
    ) -> "AsyncIterator[Relay]":
        async with AsyncExitStack() as stack:
            database = await open_database(environment["DATABASE_URL"])
            stack.push_async_callback(database.close)
            relay = cls(environment, raw, stub, database)
            async with opened_broker(relay.settings.sqs_for_creation, relay.settings) as broker:
                await make_queues(broker, relay.settings)
            url = await stack.enter_async_context(serving(relay.settings))
            client = httpx.AsyncClient(base_url=url)
            relay.api = await stack.enter_async_context(client)
            yield relay

    @asynccontextmanager
    async def consuming(
        self, which: frozenset[str] = BOTH, settings: Settings | None = None
    ) -> AsyncIterator[App]:
        """The consumers at work."""
        stop = asyncio.Event()
        async with opened_consumers(
            settings or hasty(self.settings), which=which, observe=self.events.append
        ) as app:
            self._app = app
            working = asyncio.create_task(app.work(stop))
            try:
                yield app
            finally:
                stop.set()
                self._app = None  # asked for anything, it would be opened again
                assert await working == 0

    async def ask(self, kind: str = "direct", **fields: Any) -> str:
        """Have a transaction relayed, over HTTP; its id."""
        answer = await self.api.post(f"/relay/{kind}", json=request(kind, **fields))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["transactionId"])

    async def status(self, id: str) -> dict[str, Any]:
        answer = await self.api.get(f"/relay/status/{id}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def becomes(self, id: str, status: str) -> dict[str, Any]:
        """Wait until a transaction is at that status, and say how it stands."""

        async def is_there() -> bool:
            found = await self.table.get(id)
            return found is not None and found.status == status

        await eventually(is_there, within=SOON)
        return await self.status(id)

    async def dies(self, **fields: Any) -> str:
        """Have a transaction relayed, and let it fail three times; its id."""
        to = address()
        await self.stub.fail(to, status=503, message="busy", times=3)
        id_ = await self.ask(to=to, **fields)
        async with self.consuming(frozenset({MAIN})):
            await self.drained(QUEUE)
        return id_

    async def peek(self, queue: str) -> list[dict[str, Any]]:
        """Receive messages as anybody can, and leave them there."""
        got = await self.raw.receive_message(
            QueueUrl=self.url(queue),
            VisibilityTimeout=0,
            WaitTimeSeconds=1,
            MessageSystemAttributeNames=["All"],
        )
        return list(got.get("Messages", ()))

    async def queues(self) -> set[str]:
        """All queues of this relayer, without their prefix."""
        prefix = self.url(QUEUE).rpartition("/")[2].removesuffix(QUEUE)
        answer = await self.raw.list_queues(QueueNamePrefix=prefix)
        return {url.rpartition("/")[2].removeprefix(prefix) for url in answer["QueueUrls"]}

    async def put(self, body: str, queue: str = QUEUE) -> str:
        """Send a message as anybody can; SQS's id of it."""
        sent = await self.raw.send_message(QueueUrl=self.url(queue), MessageBody=body)
        return str(sent["MessageId"])

    async def lost_three_times(self) -> str:
        """Receive a message three times, and a fourth in vain; SQS's id of it."""
        ids = set()
        for _ in range(3):
            got = await self.raw.receive_message(
                QueueUrl=self.url(QUEUE), VisibilityTimeout=0, WaitTimeSeconds=5
            )
            ids |= {one["MessageId"] for one in got["Messages"]}
        last = await self.raw.receive_message(QueueUrl=self.url(QUEUE))
        assert not last.get("Messages")
        (id_,) = ids
        return str(id_)

    def url(self, queue: str) -> str:
        name = "SQS_QUEUE_URL" if queue == QUEUE else "SQS_DLQ_URL"
        return self.environment[name]

    async def attributes(self, queue: str) -> dict[str, str]:
        found = await self.raw.get_queue_attributes(
            QueueUrl=self.url(queue), AttributeNames=["All"]
        )
        return dict(found["Attributes"])

    async def depth(self, queue: str) -> int:
        """All messages of a queue: seen, hidden and delayed ones."""
        told = await self.attributes(queue)
        kinds = ("", "NotVisible", "Delayed")
        return sum(int(told[f"ApproximateNumberOfMessages{kind}"]) for kind in kinds)

    async def drained(self, queue: str = DEAD_QUEUE) -> None:
        async def is_empty() -> bool:
            return await self.depth(queue) == 0

        await eventually(is_empty, within=SOON)

    async def letters(self) -> Sequence[DeadLetter]:
        """All that the office has."""
        assert self._app is not None
        store = await self._app.letters()
        page = await store.find()
        return await store.get([head.id for head in page.heads])

    async def replays(self) -> Sequence[ReplayItem]:
        """Every part that letters had in replays."""
        assert self._app is not None
        ids = [letter.id for letter in await self.letters()]
        return await (await self._app.letters()).replays(ids)

    async def letter_of(self, id: str) -> DeadLetter:
        found = [one for one in await self.letters() if one.head.business_key == id]
        assert len(found) == 1, found
        return found[0]

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]


def request(kind: str = "direct", **fields: Any) -> dict[str, Any]:
    """What a client sends."""
    body: dict[str, Any] = {"to": address(), "data": "0xabcd", "value": "1"}
    if kind == "gasless":
        body |= {
            "sender": address(),
            "nonce": "7",
            "deadline": "1900000000",
            "signature": f"0x{'ab' * 65}",
        }
    return body | fields


def body_of(id: str, **fields: Any) -> str:
    """A message as an older API puts it on the queue."""
    return json.dumps({"transactionId": id, "type": "direct", "request": request(), **fields})
