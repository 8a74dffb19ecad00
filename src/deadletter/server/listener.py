"""Listening sockets, and the HTTP server on them, with limits for slow clients."""

import asyncio
import resource
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import ceil
from typing import Any, Final

import uvicorn
from litestar.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from deadletter.core.errors import ConfigError
from deadletter.core.text import encode_document
from deadletter.server.auth.hosts import OF_ANSWERS, bind_problem, proxy_problem
from deadletter.settings import Serve

from .problems import MEDIA_TYPE, problem_of

# Limits for connections of unauthenticated clients.
# A silent client would occupy a socket without end, and endless headers would fill the
# memory. So a connection ends if the client sends too slowly or too much. Time in which
# the client waits for an answer does not count. Trailers, the fields after a chunked
# body, are counted and dropped, because nothing here uses them.

HEAD_WITHIN: Final = 20.0  # seconds from the first expected byte to the last header
HEAD_SIZE: Final = 64 * 1024  # bytes; a single received piece may be larger
HEAD_FIELDS: Final = 200
TRAILER_SIZE: Final = 8 * 1024  # bytes of trailers and chunk extensions, as for HEAD_SIZE
TRAILER_FIELDS: Final = 32
CHUNK_FRAME: Final = 20  # bytes around each chunk of a body that are not counted
PIPELINED: Final = 128  # requests that may wait on one connection for an answer
BODY_WITHIN: Final = 30.0  # seconds for the body, and one more for every
BODY_RATE: Final = 1_000  # received bytes
TAKEN_WITHIN: Final = 60.0  # seconds that a client may leave an answer unread

_HEAD_TOO_LARGE: Final = (
    431,
    f"The headers are too large: send at most {HEAD_SIZE} bytes, {HEAD_FIELDS} fields.",
)
_TRAILERS_TOO_LARGE: Final = (
    431,
    f"The trailers are too large: send none, or at most {TRAILER_SIZE} bytes.",
)
_TOO_MANY_AT_ONCE: Final = (
    400,
    f"More than {PIPELINED} requests wait on this connection: read their answers first.",
)
_TOO_SLOW: Final = (408, "The request took too long to arrive: send it again.")


class _Refused(Exception):
    """Raised in a callback to stop the parser."""


class Connection(HttpToolsProtocol):
    """A connection of uvicorn with time limits; call `look` about every second."""

    _since: float | None = None  # when waiting for a head or a body began
    _in_body: bool = False
    _got: int = 0  # received bytes of the head or body
    _fields: int = 0  # received header fields or trailers
    _content: int = 0  # bytes of the body that are content or chunk frames
    _refusal: tuple[int, str] | None = None
    _full_since: float | None = None  # when the client stopped reading its answer

    def look(self, now: float) -> None:
        """End the connection if its client takes too long."""
        if self._full_since is not None and now - self._full_since > TAKEN_WITHIN:
            self.transport.abort()  # close() would wait until the client reads
        elif self._since is not None:
            if self._is_our_turn():
                self._since = now
            elif now - self._since > self._patience():
                self._give_up()

    def _give_up(self) -> None:
        # A client that has sent nothing gets no answer.
        if self._in_body or self._got:
            self._refuse(*_TOO_SLOW)
        else:
            self.transport.close()

    def _is_our_turn(self) -> bool:
        """Return whether the client waits for the server."""
        awaits_continue = self._in_body and self.cycle.waiting_for_100_continue
        return awaits_continue or self.flow.read_paused

    def _patience(self) -> float:
        return BODY_WITHIN + self._got / BODY_RATE if self._in_body else HEAD_WITHIN

    def _wait(self, *, in_body: bool) -> None:
        self._since = self.loop.time()
        self._in_body = in_body
        self._got = self._content = self._fields = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request of a new client."""
        super().connection_made(transport)
        self._wait(in_body=False)

    def data_received(self, data: bytes) -> None:
        """Note that the client has sent something."""
        self._got += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._since is None:
            if self.timeout_keep_alive_task is None and self.cycle.response_complete:
                self._wait(in_body=False)  # for the rest of the next request
        elif self._in_body:
            if self._got - self._content > TRAILER_SIZE:
                self._refuse(*_TRAILERS_TOO_LARGE)
        elif self._got > HEAD_SIZE:
            self._refuse(*_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start counting the fields of a request."""
        super().on_message_begin()
        self._fields = 0
        if self._since is None:
            self._wait(in_body=False)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass on a header field; drop a trailer."""
        self._fields += 1
        if not self._in_body:
            self._stop_if(self._fields > HEAD_FIELDS, _HEAD_TOO_LARGE)
            super().on_header(name, value)
            return
        self._stop_if(self._fields > TRAILER_FIELDS, _TRAILERS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Start waiting for the body."""
        self._stop_if(len(self.pipeline) >= PIPELINED, _TOO_MANY_AT_ONCE)
        super().on_headers_complete()
        self._wait(in_body=True)

    def on_chunk_header(self) -> None:
        """Count the frame of a chunk of the body."""
        self._content += CHUNK_FRAME

    def on_body(self, body: bytes) -> None:
        """Note that a part of the body has arrived."""
        self._content += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete: the client now waits for the answer."""
        super().on_message_complete()
        self._since = None
        self._in_body = False

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        super().pause_writing()
        self._full_since = self.loop.time()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._full_since = None

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser rejected, and close the connection."""
        self._refuse(*(self._refusal or (400, msg)))

    def _stop_if(self, wrong: bool, refusal: tuple[int, str]) -> None:
        if wrong:
            self._refusal = refusal
            raise _Refused

    def _refuse(self, status: int, text: str) -> None:
        """Send an error, unless the application is answering, and close the connection."""
        if not self._is_answering():
            self.transport.write(_answer(status, text))
        self.transport.close()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and (
            bool(self.pipeline) or (cycle.response_started and not cycle.response_complete)
        )


def _answer(status: int, text: str) -> bytes:
    problem, _ = problem_of(HTTPException(status_code=status, detail=text))
    body = encode_document(problem)
    lines = [
        *OF_ANSWERS.items(),
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    head = b"".join(b"%s: %s\r\n" % line for line in lines)
    return STATUS_LINE[status] + head + b"\r\n" + body


_BACKLOG: Final = 2048
_KEEP_ALIVE: Final = 75  # seconds for an idle connection, longer than clients keep it
_FILES: Final = 65_536  # open files at most; every waiting lease needs one


def check_binding(settings: Serve) -> None:
    """Raise ConfigError for settings of host, access or proxies that are unsafe."""
    problem = bind_problem(settings.host, settings.access == "on")
    problem = problem or proxy_problem(settings.proxies)
    if problem:
        raise ConfigError(problem)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise ConfigError if the address is not available."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        # asyncio sets this only for its own sockets. Without it, the second packet of
        # each answer waits 40 ms for the acknowledgement of the client.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}."
            " Choose another with --host and --port, or serve.host and serve.port."
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def allow_many_connections() -> None:
    """Raise the limit of open files as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals and the exit code to its caller."""

    def __init__(self, app: Any, settings: Serve) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on",
                backlog=_BACKLOG,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(settings.proxies),
                forwarded_allow_ips=list(settings.proxies),
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=ceil(settings.grace),
            )
        )

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Install no signal handlers."""
        return nullcontext()

    async def on_tick(self, counter: int) -> bool:
        """End connections of slow clients once per second; called ten times per second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for one in tuple(self.server_state.connections):
                if isinstance(one, Connection):
                    one.look(now)
        return await super().on_tick(counter)

    async def serve(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Serve until `should_exit`; then give requests in progress time to finish."""
        try:
            await super().serve(list(sockets or ()))
        except SystemExit as error:
            raise RuntimeError("the application did not start: see the log") from error
