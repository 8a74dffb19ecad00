"""Errors of the API as problem+json (RFC 9457), with what to do about them."""

import logging
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap
from msgspec import Struct, structs

from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    NotFound,
    QueryError,
    Refused,
    Unavailable,
    with_choices,
)
from deadletter.core.text import encode_document
from deadletter.system import SystemDice

MEDIA_TYPE: Final = "application/problem+json"
_AGAIN_AFTER: Final = 5  # seconds
_PREFIX: Final = "urn:deadletter:problem:"

log = logging.getLogger("deadletter.server")
_dice: Final = SystemDice()  # errors can occur before there is a server context


class Wrong(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with a request."""

    message: str
    key: str = ""  # the parameter, or the path in the body
    source: str = ""  # body, query, path, header


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem details document: why a request failed."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    query: str | None = None  # an invalid search
    at: int | None = None  # ...and the position of its error
    errors: tuple[Wrong, ...] = ()
    id: str | None = None  # of an unexpected error, to find it in the log


class AnswerInstead(HTTPException):
    """An error of the HTTP API that has no counterpart among the errors of the core."""

    def __init__(
        self, status: int, kind: str, detail: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail=detail, status_code=status, headers=headers)
        self.kind = kind


# The first match wins. Texts of engines can contain addresses, so they are only logged.
_TABLE: Final[tuple[tuple[type[DeadLetterError], int, str, str | None], ...]] = (
    (QueryError, 400, "query", None),
    (ConfigError, 400, "refused", None),
    (NotFound, 404, "not-found", None),
    (Conflict, 409, "conflict", None),
    (Unavailable, 503, "unavailable", "the store is unavailable: retry soon"),
    (
        Refused,
        502,
        "engine",
        "the engine rejected the request; retrying does not help: see the log",
    ),
    (DeadLetterError, 400, "refused", None),
)

# Details for errors of the framework, which only says what is wrong.
_ADVICE: Final = {
    404: "there is no such route: /api/openapi.json lists the routes",
    405: "this route does not allow the method: the header Allow lists its methods",
    413: "the request is too large: the limit is the setting serve.body_limit, in bytes",
}


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """Return the problem document of an error, and the headers of the answer."""
    if isinstance(error, DeadLetterError):
        return _core_problem(error)
    if isinstance(error, HTTPException) and error.status_code < 500:
        return _http_problem(error)
    # The text of an unexpected error is not sent, because it can contain secrets.
    id_ = _dice.new_id()
    log.error("error %s", id_, exc_info=error)
    detail = f"unexpected error: see the log for {id_}"
    return Problem(title=_title(500), status=500, detail=detail, id=id_), {}


def described(request: Request[Any, Any, Any], error: Exception) -> tuple[Problem, dict[str, str]]:
    """Return the problem document of an error of this request, and the headers."""
    if isinstance(error, RecursionError):
        error = AnswerInstead(400, "too-deep", "the request is nested too deeply")
    problem, headers = problem_of(error)
    if problem.errors:
        problem = structs.replace(problem, errors=_with_choices(request, problem))
    return problem, headers


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the response for an error."""
    problem, headers = described(request, error)
    return Response(
        encode_document(problem), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


HANDLERS: Final[ExceptionHandlersMap] = {HTTPException: answer, Exception: answer}


def _core_problem(error: DeadLetterError) -> tuple[Problem, dict[str, str]]:
    _, status, kind, instead = next(row for row in _TABLE if isinstance(error, row[0]))
    if instead is not None:
        log.warning("%s: %s", kind, error)
    problem = Problem(
        type=_PREFIX + kind, title=_title(status), status=status, detail=instead or str(error)
    )
    if isinstance(error, QueryError):
        problem = structs.replace(problem, detail=error.text, query=error.query, at=error.at)
    headers = {"retry-after": str(_AGAIN_AFTER)} if status == 503 else {}
    return problem, headers


def _http_problem(error: HTTPException) -> tuple[Problem, dict[str, str]]:
    status, detail = error.status_code, error.detail
    kind = getattr(error, "kind", None) or HTTPStatus(status).name.lower().replace("_", "-")
    if detail == _title(status) and status in _ADVICE:
        detail = _ADVICE[status]
        kind = "no-route" if status == 404 else kind
    problem = Problem(
        type=_PREFIX + kind,
        title=_title(status),
        status=status,
        detail=detail,
        errors=_wrongs(error.extra),
    )
    return problem, dict(error.headers or {})


def _wrongs(extra: object) -> tuple[Wrong, ...]:
    try:
        return msgspec.convert(extra, tuple[Wrong, ...], strict=False)
    except msgspec.ValidationError:
        return ()


def _with_choices(request: Request[Any, Any, Any], problem: Problem) -> tuple[Wrong, ...]:
    """Return the errors, with the allowed values where there is a choice."""
    given = request.scope["route_handler"].parsed_fn_signature.parameters

    def completed(wrong: Wrong) -> Wrong:
        in_body = wrong.source == "body"
        field = given.get("data" if in_body else wrong.key)
        if field is None:
            return wrong
        message = with_choices(wrong.message, field.annotation, wrong.key if in_body else "")
        return structs.replace(wrong, message=message)

    return tuple(map(completed, problem.errors))


def _title(status: int) -> str:
    return HTTPStatus(status).phrase
