"""Errors as callers see them: problem+json (RFC 9457) that says what to do."""

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
_dice: Final = SystemDice()  # there are errors before there is a place


class Wrong(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with a request."""

    message: str
    key: str = ""  # the parameter, or the place in the body
    source: str = ""  # body, query, path, header


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem details document: why a request failed."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    query: str | None = None  # a search that cannot be read
    at: int | None = None  # ...and where it stops making sense
    errors: tuple[Wrong, ...] = ()
    id: str | None = None  # of an error that only the log tells about


class AnswerInstead(HTTPException):
    """An answer other than the one asked for, that no error of the core stands for."""

    def __init__(
        self, status: int, kind: str, detail: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail=detail, status_code=status, headers=headers)
        self.kind = kind


# First match wins. What an engine says may hold addresses: it is for the log.
_TABLE: Final[tuple[tuple[type[DeadLetterError], int, str, str | None], ...]] = (
    (QueryError, 400, "query", None),
    (ConfigError, 400, "refused", None),
    (NotFound, 404, "not-found", None),
    (Conflict, 409, "conflict", None),
    (Unavailable, 503, "unavailable", "the store is out of reach: try again soon"),
    (Refused, 502, "engine", "the engine refused it, and will again: see the log"),
    (DeadLetterError, 400, "refused", None),
)

# What to do where the framework only says what is wrong.
_ADVICE: Final = {
    404: "there is nothing at this address: /api/openapi.json tells what there is",
    405: "this address takes other methods: the header Allow tells which",
    413: "the request is too long: send less; most may have serve.body_limit bytes",
}


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """The problem an error stands for, and the headers that go with it."""
    if isinstance(error, DeadLetterError):
        return _ours(error)
    if isinstance(error, HTTPException) and error.status_code < 500:
        return _theirs(error)
    # Nothing of an unforeseen error is told, for it may hold anything.
    id_ = _dice.new_id()
    log.error("error %s", id_, exc_info=error)
    detail = f"this should not have happened; the log has more under {id_}"
    return Problem(title=_title(500), status=500, detail=detail, id=id_), {}


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response for an error."""
    problem, headers = problem_of(error)
    if problem.errors:
        problem = structs.replace(problem, errors=_with_choices(request, problem))
    return Response(
        encode_document(problem), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


def _too_deep(request: Request[Any, Any, Any], _: RecursionError) -> Response[bytes]:
    return answer(request, AnswerInstead(400, "too-deep", "this is nested too deeply"))


HANDLERS: Final[ExceptionHandlersMap] = {
    HTTPException: answer,
    RecursionError: _too_deep,
    Exception: answer,
}


def _ours(error: DeadLetterError) -> tuple[Problem, dict[str, str]]:
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


def _theirs(error: HTTPException) -> tuple[Problem, dict[str, str]]:
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

    def told(wrong: Wrong) -> Wrong:
        inside = wrong.source == "body"
        field = given.get("data" if inside else wrong.key)
        if field is None:
            return wrong
        place = wrong.key if inside else ""
        message = with_choices(wrong.message, field.annotation, place)
        return structs.replace(wrong, message=message)

    return tuple(map(told, problem.errors))


def _title(status: int) -> str:
    return HTTPStatus(status).phrase
