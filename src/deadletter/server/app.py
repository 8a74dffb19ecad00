"""The application: all routes of the server, and its lifespan."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from difflib import get_close_matches
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.types import ASGIApp, Receive, Scope, Send

from deadletter.core.text import encode_document
from deadletter.office.replay_sender import ReplaySender
from deadletter.queue_server.routes import Lifespan, queue_server_routes, queue_service
from deadletter.runtime.loop_group import KeptAlive
from deadletter.server.acting.upkeep import upkeep_of
from deadletter.server.api.events import Live
from deadletter.server.api.openapi import openapi_route
from deadletter.server.auth.guards import dependencies, replay_rights
from deadletter.server.auth.hosts import refuse_odd_hosts, refuse_other_sites, security_headers
from deadletter.system import process_name

from . import health
from .api import (
    archive,
    audit,
    deaths,
    events,
    groups,
    intakes,
    letters,
    moves,
    queues,
    repairs,
    replays,
    searches,
    triage,
    upkeep,
    workers,
)
from .auth import routes as auth
from .console import routes as console
from .console.problems import page_handlers
from .console.routes import close_console, note_end, note_start, open_console
from .context import ServerContext
from .idempotency import answers_of, middleware, replayed_answer
from .problems import HANDLERS, MEDIA_TYPE, AnswerInstead, problem_of
from .search import dependencies as searching


def check_query(request: Request[Any, Any, Any]) -> None:
    """
    Raise 400 for an unknown query parameter.

    If `qurey=` were ignored, the request would apply to all letters.
    """
    known = _known(request.scope["route_handler"])
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name[:40], known, 1)
            names = ", ".join(sorted(known)) or "none"
            hint = f" Did you mean {near[0]}?" if near else f" Known: {names}."
            raise AnswerInstead(400, "parameter", f"there is no parameter {name[:40]!r}.{hint}")


@cache
def _known(handler: HTTPRouteHandler) -> frozenset[str]:
    fields = handler.parsed_fn_signature.parameters.items()
    return frozenset(
        field.kwarg_definition.name or name
        for name, field in fields
        if isinstance(field.kwarg_definition, QueryParameter)
    )


class Json(Response[Any]):
    """A JSON response that can contain any text, also lone surrogates."""

    def render(self, content: Any, media_type: str, enc_hook: Any = None) -> bytes:
        """Return the content as bytes."""
        if isinstance(content, bytes) or not media_type.startswith("application/json"):
            return super().render(content, media_type, enc_hook)
        return encode_document(content)


class HostGuard:
    """
    A wrapper of an application that checks the host of each request.

    It also covers errors, health, metrics and unknown routes.
    """

    def __init__(self, app: ASGIApp, *, only_local: bool) -> None:
        self._app = app
        self._only_local = only_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or reject it."""
        try:
            if scope["type"] == ScopeType.HTTP:
                refuse_odd_hosts(scope)
                if self._only_local:
                    refuse_other_sites(scope)
        except HTTPException as error:
            await _refuse(send, error)
        else:
            await self._app(scope, receive, send)


async def _refuse(send: Send, error: HTTPException) -> None:
    problem, _ = problem_of(error)
    body = encode_document(problem)
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),  # its body, if any, is not read
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


API: Final = "/api/v1"
_TOPICS: Final = (
    *(letters, moves, repairs, groups, replays, queues, workers, intakes, deaths),
    *(audit, archive, events, triage, searches, upkeep),
)


def build(context: ServerContext) -> Litestar:
    """Return the application of a server."""
    sender = ReplaySender(
        context.office.replays.sender,
        context.engine.ledger,
        f"{process_name()}:{context.dice.new_id()}",
        clock=context.clock,
        observe=context.observe,
        denied=replay_rights(context.access, context.clock),
        approve_above=context.settings.serve.approve_above,
    )
    sending = KeptAlive("replays", sender.run, clock=context.clock, observe=context.observe)
    context.beside["replays"] = lambda: sending.trouble
    live = Live(context.store)
    lending = queue_service(context)
    queue_routes, lifespans = queue_server_routes(context, lending)
    with_console = context.settings.serve.console == "on"
    app = Litestar(
        route_handlers=[
            *routes(),
            openapi_route(version("deadletter"), routes),
            *health.routes,
            *queue_routes,
            *([_pages()] if with_console else []),
        ],
        lifespan=[_lifespan(context, sender, sending, live), *lifespans],
        state=State(
            {
                "context": context,
                "answers": answers_of(context),
                "lending": lending,
                "console": open_console(context.clock) if with_console else None,
            }
        ),
        dependencies={
            "context": Provide(lambda: context, sync_to_thread=False),
            "sender": Provide(lambda: sender, sync_to_thread=False),
            "live": Provide(lambda: live, sync_to_thread=False),
            **dependencies,
            **searching,
        },
        exception_handlers=page_handlers(HANDLERS) if with_console else HANDLERS,
        response_class=Json,
        before_send=[security_headers],
        request_max_body_size=context.settings.serve.body_limit,
        on_shutdown=[close_console] if with_console else [],
        openapi_config=None,
        logging_config=None,
    )
    app.asgi_handler = HostGuard(app.asgi_handler, only_local=context.access is None)
    return app


def routes() -> list[Any]:
    """Return the routes that the OpenAPI document describes."""
    topics = [route for topic in _TOPICS for route in topic.routes]
    return [
        _router(API, topics),
        _router("/", replays.node_routes),
        Router(API, route_handlers=auth.routes),
    ]


def _router(path: str, handlers: list[Any]) -> Router:
    return Router(path, route_handlers=handlers, before_request=_before, middleware=[middleware])


def _pages() -> Router:
    return Router(
        "/", route_handlers=console.routes(), before_request=_before_page, after_response=note_end
    )


async def _before_page(request: Request[Any, Any, Any]) -> None:
    note_start(request)
    check_query(request)


async def _before(request: Request[Any, Any, Any]) -> Response[bytes] | None:
    check_query(request)
    return await replayed_answer(request)


def _lifespan(
    context: ServerContext, sender: ReplaySender, sending: KeptAlive, live: Live
) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        try:
            async with sending, context.intakes or nullcontext():
                yield
        finally:
            await upkeep_of(app.state).close()
            await live.close()
            await sender.close()

    return lifespan
