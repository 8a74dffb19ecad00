"""Sockets, and the HTTP server on them."""

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

# Connections that cannot be held for nothing.
# Anybody who reaches the port can open one, before anything is known of them. So what
# they have not said after a while, or say without end, ends the connection: one that
# says nothing would otherwise cost a socket for ever, and one that never stops telling
# headers all our memory. Waiting for an answer costs them nothing and is not counted.
# Trailers, the fields behind a chunked body, are counted and dropped: they come when
# it is long decided who asks, and nothing here needs any.

HEAD_WITHIN: Final = 20.0  # seconds from the first byte wanted to the last header
HEAD_SIZE: Final = 64 * 1024  # bytes, or what has come in one piece
HEAD_FIELDS: Final = 200
TRAILER_SIZE: Final = 8 * 1024  # bytes of trailers and chunk extensions, likewise
TRAILER_FIELDS: Final = 32
CHUNK_FRAME: Final = 20  # bytes around each chunk of a body that are not counted
PIPELINED: Final = 128  # requests that may wait on one connection for an answer
BODY_WITHIN: Final = 30.0  # seconds, and one more for every
BODY_RATE: Final = 1_000  # bytes that came
TAKEN_WITHIN: Final = 60.0  # seconds that an answer may lie without being fetched

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
    f"More than {PIPELINED} requests wait on this connection: read the answers first.",
)
_TOO_SLOW: Final = (408, "The request took too long to arrive: send it again.")


class _Refused(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    """Uvicorn's, with an eye on the time; `look` is to be called now and then."""

    _since: float | None = None  # when we began to wait for a head or a body
    _in_body: bool = False
    _got: int = 0  # bytes of it
    _fields: int = 0  # of the head, or behind the body
    _content: int = 0  # bytes of the body that are its content or frame
    _refusal: tuple[int, str] | None = None
    _full_since: float | None = None  # when what we wrote stopped being fetched

    def look(self, now: float) -> None:
        """End it, if its client takes too long."""
        if self._full_since is not None and now - self._full_since > TAKEN_WITHIN:
            self.transport.abort()  # closing would wait for it to be fetched
        elif self._since is not None:
            if self._is_our_turn():
                self._since = now
            elif now - self._since > self._patience():
                self._give_up()

    def _give_up(self) -> None:
        # A client that has said nothing has not asked for anything.
        if self._in_body or self._got:
            self._refuse(*_TOO_SLOW)
        else:
            self.transport.close()

    def _is_our_turn(self) -> bool:
        """Return whether the client waits for the server."""
        asks = self._in_body and self.cycle.waiting_for_100_continue
        return asks or self.flow.read_paused

    def _patience(self) -> float:
        return BODY_WITHIN + self._got / BODY_RATE if self._in_body else HEAD_WITHIN

    def _wait(self, *, in_body: bool) -> None:
        self._since = self.loop.time()
        self._in_body = in_body
        self._got = self._content = self._fields = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come; it has not said anything."""
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
                self._wait(in_body=False)  # for what it has begun to say
        elif self._in_body:
            if self._got - self._content > TRAILER_SIZE:
                self._refuse(*_TRAILERS_TOO_LARGE)
        elif self._got > HEAD_SIZE:
            self._refuse(*_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._fields = 0
        if self._since is None:
            self._wait(in_body=False)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or a trailer, which nobody is shown."""
        self._fields += 1
        if not self._in_body:
            self._stop_if(self._fields > HEAD_FIELDS, _HEAD_TOO_LARGE)
            super().on_header(name, value)
            return
        self._stop_if(self._fields > TRAILER_FIELDS, _TRAILERS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Its body, if any, is to come."""
        self._stop_if(len(self.pipeline) >= PIPELINED, _TOO_MANY_AT_ONCE)
        super().on_headers_complete()
        self._wait(in_body=True)

    def on_chunk_header(self) -> None:
        """A chunk of the body begins."""
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
        """Say what is wrong with what the parser did not take, and hang up."""
        self._refuse(*(self._refusal or (400, msg)))

    def _stop_if(self, wrong: bool, refusal: tuple[int, str]) -> None:
        if wrong:
            self._refusal = refusal
            raise _Refused

    def _refuse(self, status: int, text: str) -> None:
        """Answer in place of the application, unless it has begun to, and hang up."""
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
_KEEP_ALIVE: Final = 75  # seconds an idle connection is kept: longer than clients do
_FILES: Final = 65_536  # open at once: every waiting lease is one


def check_binding(settings: Serve) -> None:
    """Refuse to listen where everybody could come in, or to believe nobody there is."""
    problem = bind_problem(settings.host, settings.access == "on")
    problem = problem or proxy_problem(settings.proxies)
    if problem:
        raise ConfigError(problem)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, or a sentence that says why it cannot be."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        # asyncio sets this for sockets of its own only. Without it the second packet
        # of an answer waits for the client's acknowledgement: 40 ms, every time.
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
    """Uvicorn, with its hands off our signals and our exit code."""

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
        """Leave the signals alone."""
        return nullcontext()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; once, end connections whose clients take too long."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for one in tuple(self.server_state.connections):
                if isinstance(one, Connection):
                    one.look(now)
        return await super().on_tick(counter)

    async def serve(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Answer until `should_exit`; requests under way have their grace to end."""
        try:
            await super().serve(list(sockets or ()))
        except SystemExit as error:
            raise RuntimeError("the application did not start: see the log") from error
