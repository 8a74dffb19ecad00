"""A queue server on a real port, and a client made of its .proto."""

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc_tools
import httpx
import uvicorn
from google.protobuf import json_format
from grpc_tools import protoc
from litestar import Litestar
from litestar.datastructures import State

import deadletter.queue_server.routes
from deadletter.core.events import Event
from deadletter.ports import ItemStore
from deadletter.queue_server.routes import queue_server_routes, queue_service
from deadletter.server.context import ServerContext
from deadletter.server.listener import Connection

PROTO = Path(deadletter.queue_server.routes.__file__).parent / "querator.proto"
REPLIES = {  # what has data; everything else is answered by a status
    "queues.list": "QueuesListResponse",
    "queues.info": "QueueInfo",
    "queue.lease": "QueueLeaseResponse",
    "queue.stats": "QueueStatsResponse",
    "storage/items.list": "StorageItemsListResponse",
    "storage/scheduled.list": "StorageItemsListResponse",
    "storage/items.import": "StorageItemsImportResponse",
}
REQUESTS = {
    "queues.create": "QueueInfo",
    "queues.update": "QueueInfo",
    "queues.list": "QueuesListRequest",
    "queues.info": "QueuesInfoRequest",
    "queues.delete": "QueuesDeleteRequest",
    "queue.produce": "QueueProduceRequest",
    "queue.lease": "QueueLeaseRequest",
    "queue.complete": "QueueCompleteRequest",
    "queue.retry": "QueueRetryRequest",
    "queue.stats": "QueueStatsRequest",
    "queue.clear": "QueueClearRequest",
    "queue.reload": "QueueReloadRequest",
    "storage/items.list": "StorageItemsListRequest",
    "storage/items.import": "StorageItemsImportRequest",
    "storage/items.delete": "StorageItemsDeleteRequest",
    "storage/scheduled.list": "StorageItemsListRequest",
}


def generated(folder: Path) -> ModuleType:
    """The messages of the .proto, generated anew as any client would."""
    known = Path(grpc_tools.__file__).parent / "_proto"  # what others import
    into = f"--python_out={folder}"
    places = [f"-I{PROTO.parent}", f"-I{known}"]
    assert protoc.main(["protoc", *places, into, PROTO.name]) == 0
    spec = importlib.util.spec_from_file_location("generated_client", folder / "querator_pb2.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Said(Exception):
    """The server said no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.message = message


class Wire:
    """A client of the wire, in JSON or protobuf; both answer with the same names."""

    def __init__(self, http: httpx.AsyncClient, messages: ModuleType, form: str) -> None:
        self.http = http
        self._messages = messages
        self._type = f"application/{form}"

    async def __call__(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """Make a call; what it was answered, with defaults spelled out."""
        asked = getattr(self._messages, REQUESTS[name])()
        json_format.ParseDict(fields, asked)
        if self._type == "application/json":
            body = json_format.MessageToJson(asked, preserving_proto_field_name=True).encode()
        else:
            body = asked.SerializeToString()
        headers = {"content-type": self._type, "accept": self._type}
        answer = await self.http.post(f"/v1/{name}", content=body, headers=headers)
        assert answer.headers["content-type"] == self._type
        return self._read(name, answer)

    def _read(self, name: str, answer: httpx.Response) -> dict[str, Any]:
        kind = REPLIES.get(name, "Reply") if answer.status_code == 200 else "Reply"
        message = getattr(self._messages, kind)()
        if self._type == "application/json":
            json_format.Parse(answer.content, message)
        else:
            message.ParseFromString(answer.content)
        found: dict[str, Any] = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        if kind == "Reply":
            assert found["code"] == answer.status_code
        if answer.status_code != 200:
            raise Said(answer.status_code, found["message"])
        return found

    # What most tests do.

    async def create(self, name: str = "jobs", **options: Any) -> None:
        usual = {"lease_timeout": "1m", "expire_timeout": "1h"}
        await self("queues.create", **{"queue_name": name, **usual, **options})

    async def produce(self, *texts: str, queue: str = "jobs", **options: Any) -> None:
        items = [{"utf8": text, **options} for text in texts]
        await self("queue.produce", queue_name=queue, request_timeout="5s", items=items)

    async def lease(
        self, count: int = 1, *, queue: str = "jobs", client: str = "tester", within: str = "5s"
    ) -> list[dict[str, Any]]:
        got = await self(
            "queue.lease",
            queue_name=queue,
            batch_size=count,
            client_id=client,
            request_timeout=within,
        )
        return [item | {"partition": got["partition"]} for item in got["items"]]

    async def retry(self, item: dict[str, Any], *, queue: str = "jobs", **options: Any) -> None:
        items = [{"id": item["id"], **options}]
        partition = item["partition"]
        await self("queue.retry", queue_name=queue, partition=partition, items=items)

    async def complete(self, *items: dict[str, Any], queue: str = "jobs") -> None:
        await self(
            "queue.complete",
            queue_name=queue,
            partition=items[0]["partition"],
            request_timeout="5s",
            ids=[item["id"] for item in items],
        )

    async def items(self, queue: str = "jobs", **options: Any) -> list[dict[str, Any]]:
        found = await self("storage/items.list", queue_name=queue, **options)
        return list(found["items"])

    async def scheduled(self, queue: str = "jobs") -> list[dict[str, Any]]:
        return list((await self("storage/scheduled.list", queue_name=queue))["items"])


class Served:
    """A running server: what it stands on and what it observed."""

    def __init__(self, context: ServerContext, url: str, events: list[Event]) -> None:
        assert context.items is not None
        self.context = context
        self.store: ItemStore = context.items
        self.url = url
        self.events = events

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class _Uvicorn(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()


@asynccontextmanager
async def running(app: Litestar) -> AsyncIterator[str]:
    """The app on a port of its own; its URL."""
    config = uvicorn.Config(app, port=0, http=Connection, log_config=None, ws="none")
    server = _Uvicorn(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done(), task.result()
            await asyncio.sleep(0.005)
        (socket,) = server.servers[0].sockets
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        app.state.context.stopping.set()
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def served_by(context: ServerContext, events: list[Event]) -> AsyncIterator[Served]:
    """The queue server alone, without the rest of the app, which takes long to make."""
    routes, lifespan = queue_server_routes(context, queue_service(context))
    app = Litestar(
        [*routes],
        lifespan=lifespan,
        state=State({"context": context}),
        openapi_config=None,
        logging_config=None,
    )
    async with running(app) as url:
        yield Served(context, url, events)
