"""Error responses as problem+json: a code and a text."""

from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import Struct

MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """An error response."""

    def __init__(self, status: int, code: str, detail: str, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class ProblemBody(Struct, frozen=True):
    """The body of an error response."""

    status: int
    code: str
    detail: str


def answer(_: Request[Any, Any, Any], problem: Problem) -> Response[bytes]:
    """Return a problem as a response."""
    after = problem.retry_after
    return _response(
        ProblemBody(problem.status, problem.code, str(problem)),
        {} if after is None else {"Retry-After": str(after)},
    )


def answer_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Return the response to an error of the framework, such as an unknown path."""
    code = "PAYLOAD_TOO_LARGE" if error.status_code == 413 else "BAD_REQUEST"
    return _response(ProblemBody(error.status_code, code, error.detail), {})


def _response(body: ProblemBody, headers: dict[str, str]) -> Response[bytes]:
    return Response(
        msgspec.json.encode(body), status_code=body.status, media_type=MEDIA_TYPE, headers=headers
    )
