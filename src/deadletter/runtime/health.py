"""
Health and numbers over HTTP, for probes: a few fixed answers and nothing else.

    GET /health/live     200 while the event loop turns
    GET /health/ready    200, or 503 and why not, loop by loop
    GET /health/dlq      how deep the dead-letter mailboxes are: healthy or degraded
    GET /metrics         what was counted, for Prometheus

Requests are read up to a limit, in a limited time, and otherwise not looked at.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.letter import still_open
from deadletter.ports import LetterStore

from .lifeline import inherited_listener

REQUEST_LIMIT: Final = 8192  # bytes of request line and headers
CONNECTIONS: Final = 100
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
DEPTH_THRESHOLD: Final = 100  # letters in one mailbox from which it is degraded
OUTPUT: Final = "output"  # what dropped lines are mentioned under
_PATIENCE: Final = 5.0  # seconds to send a request, or to count letters


class Complaint(Struct, frozen=True):
    """A reason why a loop is not ready, or another warning about it."""

    loop: str
    reason: str


Readiness: TypeAlias = Callable[[], Awaitable[Sequence[Complaint]]]
Depth: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]
Exposition: TypeAlias = Callable[[], Awaitable[bytes]]
"""What was counted, in the text format of Prometheus; NotFound: nothing counts."""
Answer: TypeAlias = tuple[HTTPStatus, object]  # bytes are text, all else is JSON


async def open_letters(letters: LetterStore) -> dict[str, int]:
    """Return how many letters of each mailbox still need somebody."""
    counts = await letters.counts()
    return {source: still_open(states) for source, states in counts.items()}


class HealthServer:
    """Answers probes on its own port; port 0 lets the system choose one."""

    def __init__(
        self,
        ready: Readiness,
        *,
        notes: Readiness | None = None,
        host: str,
        port: int,
        depth: Depth | None = None,
        depth_threshold: int = DEPTH_THRESHOLD,
        metrics: Exposition | None = None,
    ) -> None:
        self._ready = ready
        self._notes = notes
        self._host = host
        self._port = port
        self._depth = depth
        self._depth_threshold = depth_threshold
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._talking: dict[asyncio.Task[None], None] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        if self._server is None:
            return self._host, self._port
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Begin to listen, on the socket our supervisor gave us if there is one."""
        listener = inherited_listener()
        if listener is not None:
            self._server = await asyncio.start_server(
                self._accept, sock=listener, limit=REQUEST_LIMIT
            )
            return
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=REQUEST_LIMIT
            )
        except OSError as error:
            raise ConfigError(
                f"cannot answer health checks on {self._host}:{self._port}: "
                f"{error.strerror}. Choose another health host or port."
            ) from error

    async def close(self) -> None:
        """Stop listening and hang up."""
        if self._server is None:
            return
        self._server.close()
        for task in self._talking:
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._talking) >= CONNECTIONS:
            # A probe takes milliseconds: who has been here longest is not one.
            oldest = next(iter(self._talking))
            oldest.cancel()
            del self._talking[oldest]
        task = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talking[task] = None
        task.add_done_callback(lambda task: self._talking.pop(task, None))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError, TimeoutError):
                status, body = await self._respond(reader)
                writer.write(_render(status, body))
                writer.close()
                async with asyncio.timeout(_PATIENCE):
                    await writer.wait_closed()
        finally:
            # Closing alone waits for a client that does not read, without end.
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> Answer:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except TimeoutError:
            return _problem(HTTPStatus.REQUEST_TIMEOUT)
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _problem(HTTPStatus.BAD_REQUEST)
        method, path = words[0], words[1].split(b"?", 1)[0]
        return await self._answer(method, path)

    async def _answer(self, method: bytes, path: bytes) -> Answer:
        known = {
            b"/health/live": self._live,
            b"/health/ready": self._readiness,
            b"/health/dlq": self._dlq,
            b"/metrics": self._numbers,
        }
        if path not in known:
            return _problem(HTTPStatus.NOT_FOUND)
        if method != b"GET":
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED)
        return await known[path]()

    async def _live(self) -> Answer:
        return HTTPStatus.OK, {"status": "healthy"}

    async def _readiness(self) -> Answer:
        complaints = await self._ready()
        notes = await self._notes() if self._notes is not None else ()
        body: dict[str, object] = {"notes": notes} if notes else {}
        if not complaints:
            return HTTPStatus.OK, {"status": "healthy", **body}
        body = {"status": "unhealthy", "reasons": complaints, **body}
        return HTTPStatus.SERVICE_UNAVAILABLE, body

    async def _dlq(self) -> Answer:
        if self._depth is None:
            return _problem(HTTPStatus.NOT_FOUND)
        try:
            async with asyncio.timeout(_PATIENCE):
                depths = await self._depth()
        except Exception as error:  # noqa: BLE001 -- not knowing is an answer too
            reason = f"the depth is not known: {type(error).__name__}"
            body = {"status": "unhealthy", "reason": reason}
            return HTTPStatus.SERVICE_UNAVAILABLE, body
        return HTTPStatus.OK, _dlq_body(depths, self._depth_threshold)

    async def _numbers(self) -> Answer:
        if self._metrics is None:
            return _problem(HTTPStatus.NOT_FOUND)
        try:
            return HTTPStatus.OK, await self._metrics()
        except NotFound as error:
            return HTTPStatus.NOT_FOUND, {"error": str(error)}


def _dlq_body(depths: Mapping[str, int], threshold: int) -> dict[str, object]:
    """Return the deepest one by name, and all of them."""
    dlqs = [
        {"name": name, "depth": depth, "threshold": threshold}
        for name, depth in sorted(depths.items(), key=lambda item: (-item[1], item[0]))
    ]
    deepest = max(depths.values(), default=0)
    status = "healthy" if deepest < threshold else "degraded"
    return {"status": status, "dlq": dlqs[0] if dlqs else None, "dlqs": dlqs}


def _problem(status: HTTPStatus) -> Answer:
    return status, {"error": status.phrase}


def _render(status: HTTPStatus, body: object) -> bytes:
    kind = TEXT if isinstance(body, bytes) else "application/json"
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET")
    return "\r\n".join([*lines, "", ""]).encode() + content
