"""What is wrong with a request, as problem+json: a code, and words."""

from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import Struct

MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """An answer other than 202."""

    def __init__(self, status: int, code: str, detail: str, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Told(Struct, frozen=True):
    """The body of such an answer."""

    status: int
    code: str
    detail: str


def answer(_: Request[Any, Any, Any], problem: Problem) -> Response[bytes]:
    """A problem as a response."""
    after = problem.retry_after
    return _response(
        Told(problem.status, problem.code, str(problem)),
        {} if after is None else {"Retry-After": str(after)},
    )


def answer_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework refuses itself: no such path, a body that is too large."""
    code = "PAYLOAD_TOO_LARGE" if error.status_code == 413 else "BAD_REQUEST"
    return _response(Told(error.status_code, code, error.detail), {})


def _response(told: Told, headers: dict[str, str]) -> Response[bytes]:
    return Response(
        msgspec.json.encode(told), status_code=told.status, media_type=MEDIA_TYPE, headers=headers
    )
