"""
The calls of the queue server, as an ASGI application under /v1.

Every call is a POST with a body in JSON or protobuf, and so is its reply. Every error is
an error to the client, never a 200.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from litestar import Litestar, asgi
from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.exceptions import PermissionDeniedException
from litestar.handlers import ASGIRouteHandler
from litestar.types import HTTPScope, Message, Receive, Scope, Send
from msgspec import UNSET, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By
from deadletter.ports import ItemStore, LetterStore
from deadletter.server.auth.guards import admit, authenticator, caller, check_seen, check_uses
from deadletter.server.auth.hosts import Connection
from deadletter.server.context import ServerContext
from deadletter.settings import QueueCodes

from . import administration, limits, wire
from .administration import AuditedChange, reason_of
from .formats import WireFormat, format_of_body, format_of_reply, read, write
from .limits import KILO, LISTED, MEGA
from .model import (
    Completion,
    Item,
    ItemRetry,
    LeasedItems,
    LeaseQueue,
    NewItem,
    RetryBatch,
    queue_not_found,
)
from .service import QueueService
from .waiting_requests import TryAgain
from .wire import (
    BAD,
    DONE,
    NO_OTHER_CODES,
    OK,
    QUERATOR_CODES,
    UNKNOWN,
    CompleteRequest,
    DeleteQueue,
    LeaseItem,
    LeaseReply,
    LeaseRequest,
    ProduceItem,
    ProduceRequest,
    QueueInfo,
    Reply,
    RetryRequest,
    WireMessage,
    error_reply,
    reply_to_error,
)


async def check_queues(who: Identity, request: WireMessage, store: ItemStore) -> None:
    """
    Reject calls about queues that the caller may not see.

    Such a queue is reported as missing. Callers that see only some queues cannot make
    calls about all queues.
    """
    if not who.sources:
        return
    named = getattr(request, "queue_name", None)
    if named is None:
        raise PermissionDeniedException("this token is limited to some queues; name one")
    if named:
        check_seen(who, named, queue_not_found)

    async def there() -> Sequence[LeaseQueue]:
        return await _all(store)

    if isinstance(request, DeleteQueue):
        await check_uses(who, named, there)
    elif isinstance(request, QueueInfo) and request.dead_queue is not UNSET:
        dead_queue = administration.with_removed_options(request).dead_queue or None
        if dead_queue:
            check_seen(who, dead_queue, queue_not_found)
        await check_uses(who, named, there, leads_to=dead_queue)


async def _all(store: ItemStore) -> list[LeaseQueue]:
    found = list(await store.queues(limit=LISTED))
    while len(found) % LISTED == 0 and found:
        more = await store.queues(pivot=found[-1].name, limit=LISTED + 1)
        if len(more) <= 1:
            break
        found += more[1:]
    return found


async def produce(service: QueueService, request: ProduceRequest) -> Reply:
    """Add items, all of them or none."""
    queue = limits.queue_name(request.queue_name)
    within = limits.request_timeout(request.request_timeout)
    limits.batch("items", request.items)
    items = [_new_item(item) for item in request.items]
    await service.produce(queue, items, within=within)
    return DONE


def lease(service: QueueService, request: LeaseRequest) -> asyncio.Future[LeasedItems]:
    """Wait for items; cancel the future when the client has gone."""
    queue = limits.queue_name(request.queue_name)
    within = limits.request_timeout(request.request_timeout)
    want = limits.batch_size(request.batch_size)
    if not request.client_id:
        raise ConfigError("invalid client_id; it must not be empty")
    return service.lease(queue, request.client_id, want, within=within)


def lease_reply(queue: str, leased: LeasedItems) -> LeaseReply:
    """Return the reply to a client that has leased items."""
    return LeaseReply(queue, leased.partition, [_leased_item(item) for item in leased.items])


async def complete(service: QueueService, request: CompleteRequest) -> Reply:
    """Complete leased items, all of them or none."""
    queue = limits.queue_name(request.queue_name)
    within = limits.request_timeout(request.request_timeout)
    limits.batch("ids", request.ids)
    partition = limits.partition(request.partition)
    ids = tuple(limits.text("id", one) for one in request.ids)
    await service.complete(queue, Completion(partition, ids), within=within)
    return DONE


async def retry(service: QueueService, request: RetryRequest) -> Reply:
    """Return leased items to their queue, all of them or none."""
    queue = limits.queue_name(request.queue_name)
    limits.batch("items", request.items)
    partition = limits.partition(request.partition)
    items = tuple(
        ItemRetry(limits.text("id", item.id), limits.moment("retry_at", item.retry_at), item.dead)
        for item in request.items
    )
    await service.retry(queue, RetryBatch(partition, items))
    return DONE


def _new_item(item: ProduceItem) -> NewItem:
    payload = item.payload or item.utf8.encode()
    # Most items have nothing else, and each check costs as much as the whole item.
    if not (item.reference or item.encoding or item.kind or item.enqueue_at):
        return NewItem(payload)
    return NewItem(
        payload,
        limits.reference(item.reference),
        limits.text("encoding", item.encoding),
        limits.text("kind", item.kind),
        limits.moment("enqueue_at", item.enqueue_at),
    )


def _leased_item(item: Item) -> LeaseItem:
    return LeaseItem(
        item.encoding,
        item.kind,
        item.reference,
        item.id,
        item.attempts,
        item.lease_deadline or UNSET,
        item.payload,
    )


S = TypeVar("S", bound=wire.WireMessage)


class Call(Struct, frozen=True):
    """One call: it is answered, or it is a change for the audit, or it waits (lease)."""

    request: type[wire.WireMessage]
    role: Role
    answer: Callable[[QueueService, Any], Awaitable[wire.WireMessage]] | None = None
    body: int = 256 * KILO  # bytes it may have
    change: Callable[[QueueService, Any], Awaitable[AuditedChange]] | None = None


def _call(
    request: type[S],
    role: Role,
    answer: Callable[[QueueService, S], Awaitable[wire.WireMessage]],
    body: int = 256 * KILO,
) -> Call:
    return Call(request, role, answer, body)


def _change(
    request: type[S],
    change: Callable[[QueueService, S], Awaitable[AuditedChange]],
    body: int = 256 * KILO,
) -> Call:
    return Call(request, Role.ADMIN, body=body, change=change)


LEASE: Final = Call(wire.LeaseRequest, Role.OPERATOR, body=512)

CALLS: Final[Mapping[str, Call]] = MappingProxyType(
    {
        "queue.produce": _call(wire.ProduceRequest, Role.OPERATOR, produce, 5 * MEGA),
        "queue.lease": LEASE,
        "queue.complete": _call(wire.CompleteRequest, Role.OPERATOR, complete),
        "queue.retry": _call(wire.RetryRequest, Role.OPERATOR, retry),
        "queue.stats": _call(wire.QueueName, Role.READER, administration.stats),
        "queue.clear": _change(wire.ClearRequest, administration.clear),
        "queue.reload": _change(wire.QueueName, administration.reload),
        "queues.create": _change(wire.QueueInfo, administration.create_queue, 512 * KILO),
        "queues.update": _change(wire.QueueInfo, administration.update_queue),
        "queues.delete": _change(wire.DeleteQueue, administration.delete_queue),
        "queues.list": _call(wire.ListQueues, Role.READER, administration.list_queues),
        "queues.info": _call(wire.QueueName, Role.READER, administration.queue_info),
        "storage/items.list": _call(wire.ListItems, Role.ADMIN, administration.list_items),
        "storage/items.import": _change(wire.ImportItems, administration.import_items, 64 * MEGA),
        "storage/items.delete": _change(wire.DeleteItems, administration.delete_items),
        "storage/scheduled.list": _call(wire.ListItems, Role.ADMIN, administration.list_scheduled),
    }
)


DISCARDED: Final = 72 * MEGA  # of a rejected body, read so that the reply arrives


class ClientGone(Exception):
    """The client has closed the connection."""


class Body:
    """The body of a request; never more of it is in memory than allowed."""

    def __init__(self, headers: Mapping[bytes, str], receive: Receive) -> None:
        length = headers.get(b"content-length", "")
        self._length = int(length) if length.isdecimal() else 0
        self._receive = receive
        self._is_whole = False

    async def read(self, limit: int) -> bytes:
        """Return the whole body; one that is too long raises before it is complete."""
        if self._length > limit:
            raise _too_long(limit)
        parts: list[bytes] = []
        size = 0
        while not self._is_whole:
            parts.append(await self._next())
            size += len(parts[-1])
            if size > limit:
                raise _too_long(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def discard_rest(self) -> bool:
        """
        Read the rest of the body; return False if it is so long that we hang up.

        A client reads no reply while it is still sending.
        """
        left = DISCARDED
        while not self._is_whole and self._length <= DISCARDED and left > 0:
            left -= len(await self._next())
        return self._is_whole

    async def disconnected(self) -> None:
        """Wait until the client closes the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientGone
        self._is_whole = not message.get("more_body", False)
        return message.get("body", b"")


def _too_long(limit: int) -> ConfigError:
    return ConfigError(f"request body is too long; it exceeds {limit:,} bytes")


class QueueServer:
    """Answers the calls of clients."""

    def __init__(
        self, service: QueueService, office: LetterStore, *, codes: QueueCodes = "deadletter"
    ) -> None:
        self._service = service
        self._office = office
        self._other_codes = QUERATOR_CODES if codes == "querator" else NO_OTHER_CODES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == ScopeType.WEBSOCKET:
            return
        headers = _headers(scope)
        body = Body(headers, receive)
        form, extra = WireFormat.JSON, dict[str, str]()
        with suppress(ClientGone):
            try:
                form = format_of_reply(headers.get(b"accept", ""), _likely_format(headers))
                answer = await self._answer(scope, headers, body)
            except ClientGone:
                raise
            except Exception as error:  # noqa: BLE001 -- the one place that replies to errors
                answer, headers_of_error = reply_to_error(error, self._other_codes)
                extra.update(headers_of_error)
            if not await body.discard_rest():
                extra["connection"] = "close"
            status = answer.code if isinstance(answer, Reply) else OK
            await _send(send, status, write(answer, form), form, extra)

    async def _answer(
        self, scope: HTTPScope, headers: Mapping[bytes, str], body: Body
    ) -> WireMessage:
        if scope["method"] != "POST":
            return error_reply(BAD, f"method {scope['method']!a} not allowed; only POST")
        name = scope["path"].removeprefix("/v1").strip("/")
        call = CALLS.get(name)
        if call is None:
            return error_reply(UNKNOWN, f"no such method; /v1/{name[:200]}")
        connection: Connection = ASGIConnection(scope)
        who = await admit(connection, call.role)
        form = format_of_body(
            headers.get(b"content-type", ""), headers.get(b"content-encoding", "")
        )
        request = read(await body.read(call.body), form, call.request)
        await check_queues(who, request, self._service.store)
        if call is LEASE:
            assert isinstance(request, LeaseRequest)
            return await self._lease(request, body, connection)
        if call.change is not None:
            by = By(who.name, reason_of(headers))
            done = await call.change(self._service, request)
            await self._office.record(name, done.queue, by, done.detail)
            return done.answer
        assert call.answer is not None
        return await call.answer(self._service, request)

    async def _lease(
        self, request: LeaseRequest, body: Body, connection: Connection
    ) -> WireMessage:
        waiting = lease(self._service, request)
        gone = asyncio.create_task(body.disconnected())
        # A client that has gone, or is no longer authorized, must not lease anything.
        gone.add_done_callback(lambda _: waiting.cancel())
        known = await caller(connection)
        try:
            with authenticator(connection).watching(known, waiting.cancel):
                return lease_reply(request.queue_name, await waiting)
        except asyncio.CancelledError:
            if gone.done():
                raise ClientGone from None
            if waiting.cancelled():
                await authenticator(connection).caller(connection)  # raises what is wrong
                raise TryAgain("the caller could not be identified; try again") from None
            raise
        finally:
            gone.cancel()


def _headers(scope: Scope) -> dict[bytes, str]:
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def _likely_format(headers: Mapping[bytes, str]) -> WireFormat:
    """Return the format of the body, for a reply to a client that accepts any."""
    is_protobuf = "protobuf" in headers.get(b"content-type", "")
    return WireFormat.PROTOBUF if is_protobuf else WireFormat.JSON


async def _send(
    send: Send, status: int, body: bytes, form: WireFormat, extra: Mapping[str, str]
) -> None:
    headers = [
        (b"content-type", form.value.encode()),
        (b"content-length", str(len(body)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in extra.items()),
    ]
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


Lifespan: TypeAlias = Callable[[Litestar], AbstractAsyncContextManager[None]]


def queue_service(place: ServerContext) -> QueueService | None:
    """Return the service of all queues; None if the engine has no item store."""
    if place.items is None:
        return None
    return QueueService(place.items, clock=place.clock, dice=place.dice, observe=place.observe)


def queue_server_routes(
    place: ServerContext, service: QueueService | None
) -> tuple[list[ASGIRouteHandler], list[Lifespan]]:
    """Return the routes of a service and their lifespans; none without one."""
    if service is None:
        return [], []
    place.beside["items"] = service.problem
    return [queue_server(place, service)], [service_lifespan(place, service)]


def queue_server(place: ServerContext, service: QueueService) -> ASGIRouteHandler:
    """Return the route of everything under /v1; access is checked inside."""
    server = QueueServer(service, place.store, codes=place.settings.serve.queue_codes)

    @asgi("/v1", is_mount=True, copy_scope=True)
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await server(scope, receive, send)

    return answer


def service_lifespan(place: ServerContext, service: QueueService) -> Lifespan:
    """
    Run the service for the lifespan of an app, or until it has to stop.

    Clients that wait for items when `place.stopping` is set get TryAgain.
    """

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async def stop() -> None:
            await place.stopping.wait()
            await service.stop()

        async with service:
            closes = asyncio.create_task(stop())
            try:
                yield
            finally:
                closes.cancel()

    return lifespan
