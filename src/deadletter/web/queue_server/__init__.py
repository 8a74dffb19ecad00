"""
The lease-queue server: the wire that other languages speak, under /v1.

    routes, lifespan = mounted(place)
    Litestar([*routes], lifespan=lifespan)
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from litestar import Litestar, asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from deadletter.lending import Lending
from deadletter.web.place import Place

from .server import QueueServer

__all__ = ["QueueServer", "lending_hours", "mounted", "queue_server"]

Lifespan: TypeAlias = Callable[[Litestar], AbstractAsyncContextManager[None]]


def mounted(place: Place) -> tuple[list[ASGIRouteHandler], list[Lifespan]]:
    """The routes and what runs beside them; none where the engine cannot lend."""
    if place.items is None:
        return [], []
    lending = Lending(
        place.items, clock=place.clock, dice=place.dice, observe=place.observe
    )
    place.beside["items"] = lending.ready
    return [queue_server(place, lending)], [lending_hours(place, lending)]


def queue_server(place: Place, lending: Lending) -> ASGIRouteHandler:
    """Everything under /v1; who may ask for what is checked inside."""
    server = QueueServer(lending, place.store)

    @asgi("/v1", is_mount=True, copy_scope=True)
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await server(scope, receive, send)

    return answer


def lending_hours(place: Place, lending: Lending) -> Lifespan:
    """
    For the lifespan of an app: lending goes on until it ends, or is told to stop.

    Who waits for items when `place.stopping` is set is told to try again.
    """

    @asynccontextmanager
    async def hours(_: Litestar) -> AsyncIterator[None]:
        async def closing() -> None:
            await place.stopping.wait()
            await lending.stop()

        async with lending:
            closes = asyncio.create_task(closing())
            try:
                yield
            finally:
                closes.cancel()

    return hours
