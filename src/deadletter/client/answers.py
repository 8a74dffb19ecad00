"""What a server's refusal means: the error it stands for, with the server's words."""

from http import HTTPStatus
from typing import Final

import httpx
import msgspec
from msgspec import Struct

from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    NotFound,
    QueryError,
    Refused,
    Unavailable,
)

_LATER: Final = frozenset({429, 454, 503})
_PERHAPS: Final = frozenset({502, 504})  # a proxy's: something may have been done

_LONGEST_WAIT: Final = 60.0  # seconds; a server that asks for more is not waited for
_NO_ROUTE: Final = "urn:deadletter:problem:no-route"
_ENGINE: Final = "urn:deadletter:problem:engine"
_IN_PROGRESS: Final = "urn:deadletter:problem:in-progress"  # the same, sent before


class Later(Unavailable):
    """A server that is there said: not now, and nothing was done."""


class Unreachable(Unavailable):
    """Nobody answers there, or the connection broke off."""


class Stranger(Refused):
    """The server does not know who asks: there is no token, or it is not good."""


_BY_STATUS: Final[dict[int, type[DeadLetterError]]] = {
    400: ConfigError,
    401: Stranger,
    403: Refused,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: ConfigError,
    422: ConfigError,
    428: ConfigError,
    452: ConfigError,
    453: Refused,
    455: ConfigError,
}


class _Wrong(Struct, frozen=True):
    message: str = ""
    key: str = ""


class _Problem(Struct, frozen=True):
    """A problem, or a status reply of the queue server: both say what is wrong."""

    type: str = ""
    detail: str = ""
    message: str = ""
    query: str | None = None
    at: int | None = None
    errors: tuple[_Wrong, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Problem, strict=False)


def error_of(response: httpx.Response) -> DeadLetterError:
    """The error that a response stands for; its body must have been read."""
    status = response.status_code
    problem = _problem_in(response)
    text = _text(problem) or f"the server says {status} {_phrase(status)}"
    if problem.query is not None:
        return QueryError(text, query=problem.query, at=problem.at or 0)
    if problem.type == _NO_ROUTE or (
        status == 404 and _text(problem) in {"", _phrase(status)}
    ):
        # Ours says what is not there. This one does not even know such requests.
        place = response.url.copy_with(query=None)
        return ConfigError(
            f"there is nothing at {place}: is a deadletter server there?"
        )
    if problem.type == _ENGINE:
        return Refused(text)
    if status in _LATER:
        return Later(text)
    if status in _PERHAPS or problem.type == _IN_PROGRESS:
        return Unavailable(text)
    return _BY_STATUS.get(status, Refused)(text)


def wait_of(response: httpx.Response) -> float | None:
    """How many seconds the server asks to wait, if it says so and it is bearable."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _LONGEST_WAIT else None


def _problem_in(response: httpx.Response) -> _Problem:
    try:
        return _decoder.decode(response.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # a proxy's page, most likely
        return _Problem()


def _text(problem: _Problem) -> str:
    said = problem.detail or problem.message
    wrongs = [f"{one.key}: {one.message}".strip(": ") for one in problem.errors]
    return "; ".join(part for part in (said, *wrongs) if part)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
