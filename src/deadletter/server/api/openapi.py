"""
The API described: OpenAPI 3.1, with what each route needs and says.

Paths and parameters are Litestar's; bodies are described by msgspec, which reads and
writes them, so that the description is as strict as the server.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_origin

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.params import RawBody
from litestar.response import Stream
from litestar.routes import HTTPRoute

from deadletter.server.auth.guards import Needs
from deadletter.server.idempotency import HEADER, METHODS
from deadletter.server.problems import MEDIA_TYPE, Problem

from .archive import LINES
from .examples import EXAMPLES, Example

PATH: Final = "/api/openapi.json"
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = """
Dead letters: searched, read, told, grouped, reviewed, edited, replayed.

Errors are `application/problem+json` with a `detail` that says what to do. A POST or
PATCH with an `Idempotency-Key` is done once, however often it is sent; signing in does
without. A new token is shown in the first answer only. Lists go on with `after`.
"""
_KEY: Final = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "The same request with the same key is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}


def openapi_route(version: str, routes: Callable[[], Sequence[Any]]) -> HTTPRouteHandler:
    """The route that describes these routes, worked out when first asked."""

    @cache
    def described() -> bytes:
        return msgspec.json.encode(describe(version, routes()))

    @get(PATH, media_type="application/json", include_in_schema=False)
    async def openapi() -> Response[bytes]:
        return Response(described(), media_type="application/json")

    return openapi


def describe(version: str, routes: Sequence[Any]) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    app = Litestar(
        route_handlers=routes,
        dependencies={name: _nothing() for name in ("place", "who", "sender", "live", "searching")},
        openapi_config=OpenAPIConfig(
            title="deadletter",
            version=version,
            description=_ABOUT.strip(),
            operation_id_creator=lambda handler, *_: handler.fn.__name__,
            render_plugins=[],
        ),
        logging_config=None,
    )
    document: dict[str, Any] = msgspec.to_builtins(app.openapi_schema.to_schema())
    kinds = {Problem}
    for path, method, handler in _handlers(app):
        operation = document["paths"].get(path, {}).get(method)
        if operation is not None:
            kinds |= _describe(operation, handler)
    _, schemas = msgspec.json.schema_components(list(kinds), ref_template=_REF)
    document["components"] = {
        "schemas": schemas,
        "responses": {
            "Problem": {
                "description": "It was not done; `detail` says why and what to do.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
            }
        },
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    document["security"] = [{"token": []}]
    return document


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in handler.http_methods:
                    yield route.path_format, method.lower(), handler


def _describe(operation: dict[str, Any], handler: HTTPRouteHandler) -> set[Any]:
    """Say in an operation what Litestar does not; the types it speaks of."""
    about = inspect.getdoc(handler.fn)
    if about is not None:
        operation["summary"], _, operation["description"] = about.partition("\n\n")
    needed = [one.role for one in handler.resolve_guards() if isinstance(one, Needs)]
    if needed:
        operation["x-role"] = needed[0]
    else:
        operation["security"] = []
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        parameter["schema"] = _tight(parameter["schema"])
    if handler.http_methods & METHODS and handler.resolve_before_request():
        parameters.append(_KEY)
    example = EXAMPLES.get(operation["operationId"], Example(None))
    return {
        kind
        for kind in (
            _describe_body(operation, handler, example.asked),
            _describe_answer(operation, handler, example),
        )
        if kind is not None
    }


def _describe_body(operation: dict[str, Any], handler: HTTPRouteHandler, example: Any) -> Any:
    """Say what is to be sent; the type of it."""
    taken = handler.parsed_fn_signature.parameters
    kind = taken["data"].annotation if "data" in taken else None
    if kind is not None:
        content = {"application/json": _content(kind, example)}
    elif any(one.annotation is RawBody for one in taken.values()):
        content = {LINES: {"schema": {"type": "string"}, "example": example}}
    else:
        return None
    operation["requestBody"] = {"required": True, "content": content}
    return kind


def _describe_answer(operation: dict[str, Any], handler: HTTPRouteHandler, example: Example) -> Any:
    """Say what is answered; the type of it."""
    told = {str(handler.status_code): example.answered}
    told |= {str(status): other for status, other in example.others.items()}
    kind = _given(handler)
    for status, one in told.items():
        answer = operation["responses"][status]
        if kind is not None:
            answer["content"] = {"application/json": _content(kind, one)}
        elif one is None:
            answer.pop("content", None)
        else:  # bytes, lines, a stream
            for content in answer["content"].values():
                content.update(schema={"type": "string"}, example=one)
    described = {status: operation["responses"][status] for status in told}
    operation["responses"] = described | {"default": _PROBLEM}
    return kind


def _content(kind: Any, example: Any) -> dict[str, Any]:
    said = {"schema": _schema(kind)}
    return said if example is None else said | {"example": msgspec.to_builtins(example)}


def _given(handler: HTTPRouteHandler) -> Any:
    """What a route answers with, unless it is bytes or nothing."""
    given = handler.parsed_fn_signature.return_type.annotation
    if get_origin(given) is Response:
        (given,) = get_args(given)
    return None if given in (bytes, Stream, None, NoneType) else given


def _schema(kind: Any) -> Any:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _tight(schema: dict[str, Any]) -> dict[str, Any]:
    """
    A parameter as it is: it cannot be null, and numbers count something.

    Litestar says the one of whatever may be left out, and forgets a minimum of 0.
    """
    options = [one for one in schema.get("oneOf", ()) if one != {"type": "null"}]
    if len(options) == 1:
        schema = {name: said for name, said in schema.items() if name != "oneOf"}
        schema |= options[0]
    return {"minimum": 0} | schema if schema.get("type") == "integer" else schema


def _nothing() -> Provide:
    return Provide(lambda: None, sync_to_thread=False)
