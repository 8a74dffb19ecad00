"""How a call ended: codes of the wire, and which error is which."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from litestar.exceptions import HTTPException

from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.lending import TryAgain
from deadletter.web.problems import problem_of

from .said import Reply

OK: Final = 200
BAD: Final = 400
UNREADABLE: Final = 452
FAILED: Final = 453
AGAIN: Final = 454
UNANSWERABLE: Final = 455
INTERNAL: Final = 500
UNKNOWN: Final = 501

TEXTS: Final = MappingProxyType(
    {
        OK: "OK",
        BAD: "Bad Request",
        401: "Unauthorized",
        403: "Forbidden",
        404: "Not Found",
        409: "Conflict",
        429: "Too Many Requests",
        UNREADABLE: "Client Content Error",
        FAILED: "Request Failed",
        AGAIN: "Retry Request",
        UNANSWERABLE: "Client Error",
        INTERNAL: "Internal Service Error",
        UNKNOWN: "Not Implemented",
    }
)

# First match wins. Where a text is given, the error's own is for the log alone: what
# an engine says may hold addresses.
_TABLE: Final[tuple[tuple[type[DeadLetterError], int, str | None], ...]] = (
    (TryAgain, AGAIN, None),
    (NotFound, 404, None),
    (Conflict, 409, None),
    (Unavailable, AGAIN, "storage is out of reach; try again later"),
    (Refused, FAILED, "storage refused the request; it will again"),
    (ConfigError, BAD, None),
    (DeadLetterError, BAD, None),
)
DONE: Final = Reply(OK, TEXTS[OK])


class Unreadable(Exception):
    """A body, or a type of body, that nobody here can read."""


class Unanswerable(Exception):
    """A reply was asked for in a form that nobody here can write."""


def reply_of(error: Exception) -> tuple[Reply, Mapping[str, str]]:
    """What a client is told about an error, and the headers that go with it."""
    if isinstance(error, Unreadable):
        return failed(UNREADABLE, str(error)), {}
    if isinstance(error, Unanswerable):
        return failed(UNANSWERABLE, str(error)), {}
    if isinstance(error, HTTPException) and error.status_code in TEXTS:
        return failed(error.status_code, error.detail), error.headers or {}
    if isinstance(error, DeadLetterError):
        code, instead = next(row[1:] for row in _TABLE if isinstance(error, row[0]))
        if instead is not None:
            problem_of(error)  # which is where it is logged
        return failed(code, instead or str(error)), {}
    problem, _ = problem_of(error)
    return failed(INTERNAL, problem.detail, {"error.id": problem.id or ""}), {}


def failed(code: int, message: str, details: dict[str, str] | None = None) -> Reply:
    """A reply that says no."""
    return Reply(code, TEXTS[code], message, details or {})
