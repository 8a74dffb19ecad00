"""A real server in a separate thread, on a free port."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Any, TypeVar

from deadletter.core.access import Identity, Role
from deadletter.core.letter import DeadLetter
from deadletter.ports import Engine
from deadletter.server.app import build
from deadletter.server.auth.keys import mint
from deadletter.server.context import ServerContext
from deadletter.server.listener import HttpServer, listen, url_of
from deadletter.server.startup import open_context
from deadletter.settings import Serve, Settings
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import opened

T = TypeVar("T")


class Served:
    """A running server, with its URL and context."""

    def __init__(self, engine_url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.engine_url = engine_url
        self.url = ""
        self.context: ServerContext
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the server, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def keep(self, *letters: DeadLetter) -> None:
        """Put letters into the office."""
        self.run(_keep(self.context, letters))

    def token(self, role: Role, *sources: str, name: str = "anna") -> str:
        """Create a token of this role and return its secret."""
        return self.run(_token(self.context, Identity(name=name, role=role, sources=sources)))


@contextmanager
def served(engine_url: str, *, access: str = "off") -> Iterator[Served]:
    """Run a server for an engine until the end of the block."""
    loop = asyncio.new_event_loop()
    server = Served(engine_url, loop)
    ready, over = threading.Event(), asyncio.Event()
    failed: list[BaseException] = []

    async def answer() -> None:
        async with _listening(server, access):
            ready.set()
            await over.wait()

    def work() -> None:
        try:
            loop.run_until_complete(answer())
        except BaseException as error:  # noqa: BLE001 -- raised in the test
            failed.append(error)
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(30)
    if not failed:
        try:
            yield server
        finally:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(over.set)
            thread.join(30)
    if failed:
        raise failed[0]


@asynccontextmanager
async def _listening(server: Served, access: str) -> AsyncIterator[None]:
    settings = Settings(
        url=server.engine_url,
        serve=Serve(access=access, replay_to=("elsewhere",)),  # type: ignore[arg-type]
    )
    with closing(listen("127.0.0.1", 0)) as socket:
        async with open_context(
            settings, clock=SystemClock(), dice=SystemDice(), observe=lambda event: None
        ) as context:
            server.context, server.url = context, url_of(socket)
            http = HttpServer(build(context), settings.serve)
            task = asyncio.create_task(http.serve([socket]))
            while not http.started:
                await asyncio.wait({task}, timeout=0.01)
            try:
                yield
            finally:
                context.stopping.set()
                http.should_exit = True
                await task


async def _keep(context: ServerContext, letters: tuple[DeadLetter, ...]) -> None:
    await context.store.keep(letters)


async def _token(context: ServerContext, to: Identity) -> str:
    assert context.access is not None
    kept, shown = mint(to, at=context.clock.now(), by="test")
    await context.access.add_token(kept)
    return shown


@asynccontextmanager
async def beside(server: Served) -> AsyncIterator[Engine]:
    """Open the same engine a second time."""
    async with opened(server.engine_url) as engine:
        yield engine
