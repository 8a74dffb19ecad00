"""
One server process, from its first request to its orderly end, and its access log.

The end has an order: readiness fails, waiting leases are told to ask again, requests in
progress finish, loops stop where it is safe, and the engine is closed. A second signal
does not wait for any of it.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
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
from deadletter.server.auth.keys import first_token, shows_token
from deadletter.settings import Settings
from deadletter.wiring.chores import chores

from .app import build
from .context import ServerContext
from .listener import HttpServer, allow_many_connections, check_binding, listen, url_of
from .startup import open_context

_PROBES: Final = ("/health", "/metrics")
_TRACE: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_UNANSWERED: Final = 499  # they hung up before there was an answer


class AccessLog:
    """
    An application that says what another one answers.

    Neither headers nor bodies nor what stands behind the `?` is written, and a path
    that somebody put a token into is not either. Probes are lines for debugging.
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
            with suppress(OSError):  # nobody reads the log: no reason not to answer
                self._log(_level(path, status), "request", fields)


def _level(path: str, status: int) -> int:
    if status >= 500 and status != 503:
        return logging.ERROR
    return logging.DEBUG if path.startswith(_PROBES) else logging.INFO


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


_LAST_WORDS: Final = 20.0  # seconds to close what is open when all else has ended
_SOON: Final = 0.02  # seconds between looks whether it has started


class Listening(Struct, frozen=True):
    """URL of a running server, and the token of its first administrator, shown once."""

    url: str
    token: str | None = None


class Ending(StrEnum):
    """The end of a server."""

    WELL = "well"
    BADLY = "badly"  # a loop did not end by itself, or in time
    HURRIED = "hurried"  # somebody did not want to wait


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
) -> Ending:
    """
    Answer until told to stop; how that ended.

    `tell` is called once requests are answered; without a `log` they are not logged.
    """
    check_binding(settings.serve)
    allow_many_connections()
    with (
        closing(listen(settings.serve.host, settings.serve.port)) as listener,
        EndDeadline() as deadline,  # until the engine is closed as well
    ):
        async with open_context(
            settings, url=url, office=office, clock=clock, dice=dice, observe=observe, fits=fits
        ) as context:

            async def listening() -> None:
                tell(Listening(url_of(listener), await _first_token(context)))

            return await Server(context, listener, log, deadline).run(listening)


async def _first_token(context: ServerContext) -> str | None:
    # Made when it can be told: one that nobody has seen would lock everybody out.
    if context.access is None:
        return None
    return await first_token(context.access, context.store, context.clock)


class Server:
    """Requests and loops of one process, on a socket that listens already."""

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
        self._please = asyncio.Event()
        self._now = asyncio.Event()

    def complaints(self) -> Sequence[Complaint]:
        """Return why the server is not ready, loop by loop."""
        if self._is_stopping:
            return [Complaint("server", "stopping")]
        troubles = {name: ready() for name, ready in self._context.beside.items()}
        beside = [Complaint(name, why) for name, why in troubles.items() if why]
        return [*self._group.complaints(), *beside]

    async def run(self, listening: Callable[[], Awaitable[None]]) -> Ending:
        """Answer until told to stop by a signal; how that ended."""
        loop = asyncio.get_running_loop()

        def told(what: asyncio.Event) -> None:
            loop.call_soon_threadsafe(what.set)

        def please() -> None:
            # Requests first, then loops, then what they used.
            self._deadline.set(self._settings.notice + 2 * self._settings.grace + _LAST_WORDS)
            told(self._please)

        with on_termination(please=please, now=lambda: told(self._now), clock=self._clock):
            loops = asyncio.create_task(self._group.run())
            http = asyncio.create_task(self._http.serve([self._listener]))
            asked = asyncio.create_task(self._please.wait())
            try:
                await self._until_started(http)
                await listening()
                await _first_of(asked, loops, http)
                return await self._end(http, loops)
            finally:
                for task in (asked, http, loops):
                    task.cancel()
                await asyncio.wait((asked, http, loops))

    async def _until_started(self, http: asyncio.Task[None]) -> None:
        while not self._http.started:
            if http.done():
                await http  # raises what it died of
            await asyncio.wait({http}, timeout=_SOON)

    async def _end(self, http: asyncio.Task[None], loops: asyncio.Task[int]) -> Ending:
        self._is_stopping = True
        hurry = asyncio.create_task(self._now.wait())
        try:
            await _first_of(hurry, http, timeout=self._settings.notice)
            self._context.stopping.set()
            self._http.should_exit = True
            await _first_of(hurry, http)
            self._group.stop()
            await _first_of(hurry, loops)
        finally:
            hurry.cancel()
        if self._now.is_set():
            return Ending.HURRIED
        await http  # raises what it died of, if that is why we are here
        # Requests that were cut off do not count: else whoever is slow enough could
        # make every end a bad one.
        return Ending.BADLY if await loops else Ending.WELL


async def _first_of(*tasks: asyncio.Task[object], timeout: float | None = None) -> None:  # noqa: ASYNC109 -- running out of it is an answer, not an error
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
