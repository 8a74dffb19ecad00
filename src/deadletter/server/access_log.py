"""A line for every request: what was asked, by whom, what was answered, how long."""

import logging
import re
from contextlib import suppress
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from deadletter.core.access import Pass
from deadletter.observe.logs import Log, line
from deadletter.ports import Clock
from deadletter.server.auth.guards import WHO
from deadletter.server.auth.keys import shows_token

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
    if isinstance(who, Pass):
        fields["actor"] = line(who.name)
    if trace := _trace(scope["headers"]):
        fields["trace_id"] = trace
    return fields


def _trace(headers: Any) -> str | None:
    for name, value in headers:
        if name == b"traceparent" and (found := _TRACE.fullmatch(value)):
            return str(found[1], "ascii")
    return None
