"""The server's routes, put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.di import Provide

from deadletter.office.replay_sender import ReplaySender
from deadletter.runtime.kept_alive import KeptAlive
from deadletter.system import process_name

from . import health, metrics
from .api import (
    archive,
    audit,
    edits,
    events,
    groups,
    letters,
    moves,
    nodes,
    outages,
    queues,
    replays,
    stats,
)
from .api.openapi import openapi_route
from .asking import check_query
from .auth import routes as auth
from .auth.guards import dependencies
from .auth.headers import security_headers
from .auth.replay_rights import replay_rights
from .encoding import Json
from .entrance import Entrance
from .idempotency import answers_of, middleware, seen_before
from .live import Live
from .place import Place
from .problems import HANDLERS
from .queue_server import Lifespan, mounted
from .searching import dependencies as searching

API: Final = "/api/v1"
_TOPICS: Final = (
    *(letters, moves, edits, groups, replays, queues, outages),
    *(audit, archive, stats, events),
)


def build(place: Place) -> Litestar:
    """Everything that is served, over one open engine."""
    sender = ReplaySender(
        place.replay,
        place.engine.ledger,
        f"{process_name()}:{place.dice.new_id()}",
        clock=place.clock,
        observe=place.observe,
        denied=replay_rights(place.access, place.clock),
    )
    looking = KeptAlive("replays", sender.run, clock=place.clock, observe=place.observe)
    place.beside["replays"] = lambda: looking.trouble
    live = Live(place.store)
    wire, hours = mounted(place)
    app = Litestar(
        route_handlers=[
            *routes(),
            openapi_route(version("deadletter"), routes),
            *health.routes,
            *metrics.routes,
            *wire,
        ],
        lifespan=[_hours(sender, looking, live), *hours],
        state=State({"place": place, "answers": answers_of(place)}),
        dependencies={
            "place": Provide(lambda: place, sync_to_thread=False),
            "sender": Provide(lambda: sender, sync_to_thread=False),
            "live": Provide(lambda: live, sync_to_thread=False),
            **dependencies,
            **searching,
        },
        exception_handlers=HANDLERS,
        response_class=Json,
        before_send=[security_headers],
        request_max_body_size=place.settings.serve.body_limit,
        openapi_config=None,
        logging_config=None,
    )
    app.asgi_handler = Entrance(app.asgi_handler, only_local=place.access is None)
    return app


def routes() -> list[Any]:
    """The routes that are described: the API's own, and those of access."""
    topics = [route for topic in _TOPICS for route in topic.routes]
    return [
        _router(API, topics),
        _router("/", nodes.routes),
        Router(API, route_handlers=auth.routes),
    ]


def _router(path: str, handlers: list[Any]) -> Router:
    return Router(
        path,
        route_handlers=handlers,
        before_request=_before,
        middleware=[middleware],
    )


async def _before(request: Request[Any, Any, Any]) -> Response[bytes] | None:
    check_query(request)
    return await seen_before(request)


def _hours(sender: ReplaySender, looking: KeptAlive, live: Live) -> Lifespan:
    @asynccontextmanager
    async def hours(_: Litestar) -> AsyncIterator[None]:
        try:
            async with looking:
                yield
        finally:
            await live.close()
            await sender.close()

    return hours
