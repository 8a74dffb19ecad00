"""
The wire of the queue server, as a plain ASGI application.

Every call is a POST; what comes of it is said by a status and a body, in JSON or
protobuf. Whatever goes wrong, the client is told, and never 200.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.types import HTTPScope, Message, Receive, Scope, Send

from deadletter.core.letter import By
from deadletter.lending import Lending, TryAgain
from deadletter.ports import LetterStore
from deadletter.web.auth.guards import admit, caller, door
from deadletter.web.auth.refusing import Connection

from . import work
from .acts import reason_of
from .bodies import Body, ClientGone
from .calls import CALLS, LEASE
from .forms import Form, form_of_body, form_of_reply, read, write
from .said import Lease, Reply, Said
from .seeing import check_queues
from .status import BAD, OK, UNKNOWN, failed, reply_of


class QueueServer:
    """Answers the calls of the wire over what is lent."""

    def __init__(self, lending: Lending, office: LetterStore) -> None:
        self._lending = lending
        self._office = office

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == ScopeType.WEBSOCKET:
            return
        headers = _headers(scope)
        body = Body(headers, receive)
        form, extra = Form.JSON, dict[str, str]()
        with suppress(ClientGone):
            try:
                form = form_of_reply(headers.get(b"accept", ""), _likely_form(headers))
                answer = await self._answer(scope, headers, body)
            except ClientGone:
                raise
            except Exception as error:  # noqa: BLE001 -- the one place that tells clients
                answer, told = reply_of(error)
                extra.update(told)
            if not await body.spent():
                extra["connection"] = "close"
            status = answer.code if isinstance(answer, Reply) else OK
            await _send(send, status, write(answer, form), form, extra)

    async def _answer(
        self, scope: HTTPScope, headers: Mapping[bytes, str], body: Body
    ) -> Said:
        if scope["method"] != "POST":
            return failed(BAD, f"method {scope['method']!a} not allowed; only POST")
        name = scope["path"].removeprefix("/v1").strip("/")
        call = CALLS.get(name)
        if call is None:
            return failed(UNKNOWN, f"no such method; /v1/{name[:200]}")
        connection: Connection = ASGIConnection(scope)
        who = await admit(connection, call.role)
        form = form_of_body(headers.get(b"content-type", ""))
        asked = read(await body.read(call.body), form, call.asked)
        await check_queues(who, asked, self._lending.store)
        if call is LEASE:
            assert isinstance(asked, Lease)
            return await self._lease(asked, body, connection)
        if call.act is not None:
            by = By(who.name, reason_of(headers))
            done = await call.act(self._lending, asked)
            await self._office.record(name, done.queue, by, done.detail)
            return done.answer
        assert call.answer is not None
        return await call.answer(self._lending, asked)

    async def _lease(self, asked: Lease, body: Body, connection: Connection) -> Said:
        waiting = work.lease(self._lending, asked)
        gone = asyncio.create_task(body.hung_up())
        # A client that hung up, or is let in no more, must not be lent anything.
        gone.add_done_callback(lambda _: waiting.cancel())
        known = await caller(connection)
        try:
            with door(connection).watching(known, waiting.cancel):
                return work.lent(asked.queue_name, await waiting)
        except asyncio.CancelledError:
            if gone.done():
                raise ClientGone from None
            if waiting.cancelled():
                await door(connection).caller(connection)  # says what is wrong
                raise TryAgain("nobody could tell who asks; try again") from None
            raise
        finally:
            gone.cancel()


def _headers(scope: Scope) -> dict[bytes, str]:
    return {name: value.decode("latin-1") for name, value in scope["headers"]}


def _likely_form(headers: Mapping[bytes, str]) -> Form:
    """The form of the body, where it matters only for how to answer."""
    is_protobuf = "protobuf" in headers.get(b"content-type", "")
    return Form.PROTOBUF if is_protobuf else Form.JSON


async def _send(
    send: Send, status: int, body: bytes, form: Form, extra: Mapping[str, str]
) -> None:
    headers = [
        (b"content-type", form.value.encode()),
        (b"content-length", str(len(body)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in extra.items()),
    ]
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": headers,
    }
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})
