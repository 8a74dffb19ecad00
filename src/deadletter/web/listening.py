"""Sockets, and the HTTP server on them."""

import asyncio
import resource
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import ceil
from typing import Any, Final

import uvicorn

from deadletter.core.errors import ConfigError
from deadletter.settings import Serve

from .auth.binding import bind_problem, proxy_problem
from .connections import Connection

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
    """Where a socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def allow_many_connections() -> None:
    """As many open files as we want, or as the system lets us have."""
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
