"""
The server process: its start, its shutdown, and its access log.

The shutdown has an order: readiness fails, waiting leases get TryAgain, requests in
progress finish, loops stop at a safe point, and the engine is closed. A second signal
skips all waiting.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from msgspec import Struct, structs

from deadletter.core.access import Identity
from deadletter.core.events import Observer
from deadletter.observe.logs import Log, line
from deadletter.office.preflight import Fits
from deadletter.ports import Clock, Dice, loss_of
from deadletter.runtime.health import Complaint
from deadletter.runtime.loop_group import EndDeadline, LoopGroup, on_termination
from deadletter.server.auth.guards import WHO
from deadletter.server.auth.keys import first_token, opening_token, shows_token, token_hash
from deadletter.settings import Settings
from deadletter.wiring.chores import chores

from .app import build
from .context import ServerContext
from .listener import HttpServer, allow_many_connections, check_binding, listen, url_of
from .startup import open_context

_QUIET: Final = ("/health", "/metrics", "/static/")
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_UNANSWERED: Final = 499  # the client disconnected before the answer


class AccessLog:
    """
    A wrapper of an application that logs each request.

    Headers, bodies and query strings are never logged, nor are paths that contain a
    token. Health checks, metrics and files of pages are logged at the level DEBUG.
    """

    def __init__(self, app: ASGIApp, log: Log, clock: Clock) -> None:
        self._app = app
        self._log = log
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        path = scope["path"]  # routing may change it
        status, size = _UNANSWERED, 0

        async def sending(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        started = self._clock.monotonic()
        try:
            await self._app(scope, receive, sending)
        finally:
            seconds = self._clock.monotonic() - started
            fields = _fields(scope, path, status, size, seconds)
            with suppress(OSError):  # the reader of the log has gone away
                self._log(_level(path, status), "request", fields)


def _level(path: str, status: int) -> int:
    if status >= 500 and status != 503:
        return logging.ERROR
    return logging.DEBUG if path.startswith(_QUIET) else logging.INFO


def _fields(scope: Any, path: str, status: int, size: int, seconds: float) -> dict[str, Any]:
    who, client = scope.get("state", {}).get(WHO), scope.get("client")
    fields = {
        "method": scope["method"],
        "path": "(a token)" if shows_token([path]) else line(path),
        "status": status,
        "seconds": round(seconds, 6),
        "bytes": size,
    }
    if client:
        fields["client"] = client[0]
    if isinstance(who, Identity):
        fields["actor"] = line(who.name)
    if trace := _trace(scope["headers"]):
        fields["trace_id"] = trace
    return fields


def _trace(headers: Any) -> str | None:
    for name, value in headers:
        if name == b"traceparent" and (found := _TRACE.fullmatch(value)):
            return str(found[1], "ascii")
    return None


_CLOSING: Final = 20.0  # seconds to close the engine after everything else has ended
_SOON: Final = 0.02  # seconds between two checks whether the server has started


class Listening(Struct, frozen=True):
    """
    URL of a running server, and the token of its first administrator, shown once.

    `door` is a link to the console that signs in once, without the token.
    """

    url: str
    token: str | None = None
    door: str | None = None


class Ending(StrEnum):
    """The way in which a server ended."""

    WELL = "well"
    BADLY = "badly"  # a loop failed, or did not end in time
    HURRIED = "hurried"  # a second signal skipped the waiting


async def serve(
    settings: Settings,
    *,
    url: str | None = None,
    office: str | None = None,
    clock: Clock,
    dice: Dice,
    observe: Observer,
    fits: Fits | None = None,
    log: Log | None,
    tell: Callable[[Listening], None],
    with_door: bool = False,
) -> Ending:
    """
    Run a server until a signal stops it; return how it ended.

    `tell` is called when the server accepts requests. Without a `log`, requests are not
    logged. `with_door` makes a link to the console also where there are tokens already.
    """
    check_binding(settings.serve)
    allow_many_connections()
    with (
        closing(listen(settings.serve.host, settings.serve.port)) as listener,
        EndDeadline() as deadline,  # also covers closing the engine
    ):
        async with open_context(
            settings, url=url, office=office, clock=clock, dice=dice, observe=observe, fits=fits
        ) as context:

            async def listening() -> None:
                tell(await _listening(url_of(listener), context, with_door=with_door))

            return await Server(context, listener, log, deadline).run(listening)


async def _listening(url: str, context: ServerContext, *, with_door: bool) -> Listening:
    access, serve = context.access, context.settings.serve
    door = url if serve.console == "on" else None
    # Created only when it can be printed: an unseen token would lock everybody out.
    if access is None:
        return Listening(url, None, door if with_door else None)
    shown = await first_token(access, context.store, context.clock)
    opening = shown
    if opening is None and with_door and door is not None:
        lasts = timedelta(hours=serve.session_hours)
        opening = await opening_token(access, context.store, context.clock, lasts=lasts)
    if opening is None or door is None or context.codes is None:
        return Listening(url, shown)
    code = context.codes.issue(token_hash(opening))
    return Listening(url, shown, f"{door}/sign-in#code={code}")


class Server:
    """The HTTP server and the loops of one process, on a listening socket."""

    def __init__(
        self,
        context: ServerContext,
        listener: socket.socket,
        log: Log | None,
        deadline: EndDeadline | None = None,
    ) -> None:
        self._context = structs.replace(context, complaints=self.complaints)
        self._settings = context.settings.serve
        self._clock = context.clock
        self._listener = listener
        app = build(self._context)
        self._http = HttpServer(
            app if log is None else AccessLog(app, log, context.clock), self._settings
        )
        self._group = LoopGroup(
            chores(
                context.engine,
                context.store,
                context.access,
                context.settings,
                clock=context.clock,
                dice=context.dice,
                observe=context.observe,
            ),
            clock=context.clock,
            observe=context.observe,
            shutdown_timeout=self._settings.grace,
            lost=partial(loss_of, context.engine),
            install_signals=False,
        )
        self._deadline = deadline or EndDeadline()
        self._is_stopping = False
        self._stop_requested = asyncio.Event()
        self._stop_now = asyncio.Event()

    def complaints(self) -> Sequence[Complaint]:
        """Return why the server is not ready, loop by loop."""
        if self._is_stopping:
            return [Complaint("server", "stopping")]
        troubles = {name: ready() for name, ready in self._context.beside.items()}
        beside = [Complaint(name, why) for name, why in troubles.items() if why]
        return [*self._group.complaints(), *beside]

    async def run(self, listening: Callable[[], Awaitable[None]]) -> Ending:
        """Serve until a signal stops the server; return how it ended."""
        loop = asyncio.get_running_loop()

        def set_event(event: asyncio.Event) -> None:
            loop.call_soon_threadsafe(event.set)

        def please() -> None:
            # Time for requests, then for loops, then for closing the engine.
            self._deadline.set(self._settings.notice + 2 * self._settings.grace + _CLOSING)
            set_event(self._stop_requested)

        with on_termination(
            please=please, now=lambda: set_event(self._stop_now), clock=self._clock
        ):
            loops = asyncio.create_task(self._group.run())
            http = asyncio.create_task(self._http.serve([self._listener]))
            stop = asyncio.create_task(self._stop_requested.wait())
            try:
                await self._until_started(http)
                await listening()
                await _first_of(stop, loops, http)
                return await self._end(http, loops)
            finally:
                for task in (stop, http, loops):
                    task.cancel()
                await asyncio.wait((stop, http, loops))

    async def _until_started(self, http: asyncio.Task[None]) -> None:
        while not self._http.started:
            if http.done():
                await http  # raises its error
            await asyncio.wait({http}, timeout=_SOON)

    async def _end(self, http: asyncio.Task[None], loops: asyncio.Task[int]) -> Ending:
        self._is_stopping = True
        hurry = asyncio.create_task(self._stop_now.wait())
        try:
            await _first_of(hurry, http, timeout=self._settings.notice)
            self._context.stopping.set()
            self._http.should_exit = True
            await _first_of(hurry, http)
            self._group.stop()
            await _first_of(hurry, loops)
        finally:
            hurry.cancel()
        if self._stop_now.is_set():
            return Ending.HURRIED
        await http  # raises its error, if it failed
        # Requests that were cut off do not count as a failure: otherwise one slow client
        # could make every shutdown fail.
        return Ending.BADLY if await loops else Ending.WELL


async def _first_of(*tasks: asyncio.Task[object], timeout: float | None = None) -> None:  # noqa: ASYNC109 -- a timeout is a result, not an error
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
