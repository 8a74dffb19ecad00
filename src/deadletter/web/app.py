"""The server's routes, put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.di import Provide

from deadletter.office.sending import Sending
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
    queues,
    replays,
    stats,
)
from .api.openapi import openapi_route
from .asking import check_query
from .auth import routes as auth
from .auth.guards import dependencies
from .auth.headers import security_headers
from .encoding import Json
from .idempotency import answers_of, middleware, seen_before
from .live import Live
from .place import Place
from .problems import HANDLERS
from .queue_server import Lifespan, mounted

API: Final = "/api/v1"
_TOPICS: Final = (
    *(letters, moves, edits, groups, replays, queues),
    *(audit, archive, stats, events),
)


def build(place: Place) -> Litestar:
    """Everything that is served, over one open engine."""
    sending = Sending(
        place.replay,
        place.engine.ledger,
        place.clock,
        f"{process_name()}:{place.dice.new_id()}",
    )
    place.beside["replays"] = sending.ready
    live = Live(place.store)
    wire, hours = mounted(place)
    return Litestar(
        route_handlers=[
            *routes(),
            openapi_route(version("deadletter"), routes),
            *health.routes,
            *metrics.routes,
            *wire,
        ],
        lifespan=[_hours(sending, live), *hours],
        state=State({"place": place, "answers": answers_of(place)}),
        dependencies={
            "place": Provide(lambda: place, sync_to_thread=False),
            "sending": Provide(lambda: sending, sync_to_thread=False),
            "live": Provide(lambda: live, sync_to_thread=False),
            **dependencies,
        },
        exception_handlers=HANDLERS,
        response_class=Json,
        before_send=[security_headers],
        request_max_body_size=place.settings.serve.body_limit,
        openapi_config=None,
        logging_config=None,
    )


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


def _hours(sending: Sending, live: Live) -> Lifespan:
    @asynccontextmanager
    async def hours(_: Litestar) -> AsyncIterator[None]:
        sending.open()
        try:
            yield
        finally:
            await live.close()
            await sending.close()

    return hours
