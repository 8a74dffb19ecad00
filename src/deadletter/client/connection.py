"""Requests to a server: retries, responses and errors."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx
import msgspec
from msgspec import Struct

from deadletter.core.backoff import Exponential
from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    NotFound,
    QueryError,
    Refused,
    Unavailable,
)
from deadletter.core.text import encode_document, is_word, plain
from deadletter.system import SystemDice

_LATER: Final = frozenset({429, 454, 503})
_UNCERTAIN: Final = frozenset({502, 504})  # of a proxy: the request may have been done

_LONGEST_WAIT: Final = 60.0  # seconds; longer Retry-After times are ignored
_NO_ROUTE: Final = "urn:deadletter:problem:no-route"
_ENGINE: Final = "urn:deadletter:problem:engine"
_IN_PROGRESS: Final = "urn:deadletter:problem:in-progress"  # the same request is being done


class Later(Unavailable):
    """The server did nothing and asks to repeat the request later."""


class Unreachable(Unavailable):
    """The server does not answer, or the connection was lost."""


class Unauthenticated(Refused):
    """The token is missing, invalid or expired."""


_BY_STATUS: Final[dict[int, type[DeadLetterError]]] = {
    400: ConfigError,
    401: Unauthenticated,
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
    """A problem document, or a status reply of the queue server."""

    type: str = ""
    detail: str = ""
    message: str = ""
    query: str | None = None
    at: int | None = None
    errors: tuple[_Wrong, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Problem, strict=False)


def error_of(response: httpx.Response) -> DeadLetterError:
    """Return the error that a response stands for; its body must have been read."""
    status = response.status_code
    problem = _problem_in(response)
    text = _text(problem) or f"the server answered {status} {_phrase(status)}"
    if problem.query is not None:
        return QueryError(text, query=problem.query, at=problem.at or 0)
    if problem.type == _NO_ROUTE or (status == 404 and _text(problem) in {"", _phrase(status)}):
        # A deadletter server says what was not found. This one has no such route.
        url = response.url.copy_with(query=None)
        return ConfigError(f"{url} was not found: is this the URL of a deadletter server?")
    if problem.type == _ENGINE:
        return Refused(text)
    if status in _LATER:
        return Later(text)
    if status in _UNCERTAIN or problem.type == _IN_PROGRESS:
        return Unavailable(text)
    return _BY_STATUS.get(status, Refused)(text)


def wait_of(response: httpx.Response) -> float | None:
    """Return the seconds that the server asks to wait, if it is a reasonable number."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _LONGEST_WAIT else None


def _problem_in(response: httpx.Response) -> _Problem:
    try:
        return _decoder.decode(response.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # probably an HTML page of a proxy
        return _Problem()


def _text(problem: _Problem) -> str:
    detail = problem.detail or problem.message
    errors = [f"{one.key}: {one.message}".strip(": ") for one in problem.errors]
    return "; ".join(part for part in (detail, *errors) if part)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


T = TypeVar("T")
Params = Mapping[str, str | int | bool | Sequence[str] | None]

API: Final = "/api/v1"
ATTEMPTS: Final = 4
_LONGEST_QUERY: Final = 65_536  # characters of the query of a URL, the limit of httpx
TIMEOUT: Final = 30.0  # seconds without any data
IDEMPOTENCY_KEY: Final = "idempotency-key"
REASON: Final = "dlq-reason"
_JSON: Final = {"content-type": "application/json"}
_BACKOFF: Final = Exponential(0.2, cap=10.0, jitter=0.5)


class Connection:
    """
    A connection to one server, with the token of the caller.

    Requests that change nothing, or carry an idempotency key, are repeated when the
    server asks for it or is unreachable. Other requests are repeated only if the
    server has certainly done nothing.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        attempts: int = ATTEMPTS,
        timeout: float = TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = _checked(url)
        self.attempts = attempts
        self._dice = SystemDice()
        headers = {"accept": "application/json"}
        if token:
            headers["authorization"] = _bearer(token)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=timeout,
            transport=transport,
            follow_redirects=False,  # a token must not be sent to another server
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def get(self, path: str, kind: type[T], **params: Any) -> T:
        """Send GET and return the answer as a value of this type."""
        response = await self.send("GET", path, params=params, repeatable=True)
        return decoded(response, kind)

    async def post(
        self,
        path: str,
        value: object,
        kind: type[T],
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> T:
        """Send a change with an idempotency key, so that repeating it is safe."""
        key = {IDEMPOTENCY_KEY: self._dice.new_id()}
        response = await self.send(
            method,
            path,
            params=params,
            content=encode_document(value),
            headers=_JSON | key | dict(headers or {}),
            repeatable=True,
        )
        return decoded(response, kind)

    async def delete(self, path: str, kind: type[T], **params: Any) -> T:
        """Send DELETE and return the answer as a value of this type."""
        response = await self.send("DELETE", path, params=params, repeatable=True)
        return decoded(response, kind)

    async def call(
        self,
        path: str,
        value: object,
        kind: type[T],
        *,
        wait: float,
        patient: bool = True,
        reason: str = "",
    ) -> T:
        """Call the queue server, for at most `wait` seconds; it has no idempotency keys."""
        # A header must not contain line breaks.
        why = {REASON: plain(" ".join(reason.split()))} if reason else {}
        response = await self.send(
            "POST",
            path,
            content=encode_document(value),
            headers=_JSON | why,
            timeout=wait,
            patient=patient,
        )
        return decoded(response, kind)

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- without data, not of the whole
        repeatable: bool = False,
        patient: bool = True,
    ) -> httpx.Response:
        """
        Return a successful response; raise any other as an error of `core.errors`.

        A `repeatable` request is sent again even if the server may have done it
        already. If `patient` is false, `Later` is raised instead of retrying.
        """
        request = self._http.build_request(
            method,
            path,
            params=_query_params(params),
            content=content,
            headers=httpx.Headers(dict(headers or {}), encoding="utf-8"),
            timeout=httpx.USE_CLIENT_DEFAULT if timeout is None else timeout,
        )
        attempt = 1
        while True:
            result, wait = await self._try(request, repeatable=repeatable)
            if isinstance(result, httpx.Response):
                return result
            is_final = isinstance(result, Later) and not patient
            if wait is None or is_final or attempt >= self.attempts:
                raise result
            backoff = _BACKOFF.delay(attempt, self._dice.draw())
            await asyncio.sleep(max(wait, backoff) if wait else backoff)
            attempt += 1

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- without data, not of the whole
    ) -> AsyncIterator[httpx.Response]:
        """Yield a response whose body is read in parts."""
        silence = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            async with self._http.stream(
                "GET",
                path,
                params=_query_params(params),
                headers=dict(headers or {}),
                timeout=silence,
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise error_of(response)
                yield response
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def _try(
        self, request: httpx.Request, *, repeatable: bool
    ) -> tuple[httpx.Response | Exception, float | None]:
        """Return the response; or the error, and the seconds to wait if it can be retried."""
        try:
            response = await self._http.send(request)
        except httpx.TransportError as error:
            is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            return self._unreachable(error), 0.0 if is_unsent or repeatable else None
        if response.is_success:
            return response, None
        failed = error_of(response)
        retryable = Unavailable if repeatable else Later
        if isinstance(failed, retryable):
            return failed, wait_of(response) or 0.0
        return failed, None

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        text = str(error) or type(error).__name__
        return Unreachable(f"the server at {self.url} is unreachable: {text}")


class Connected:
    """Base of clients; closed by `close`, or at the end of `async with`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def decoded(response: httpx.Response, kind: type[T]) -> T:
    """Return the body of a response as a value of this type."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(
            f"the answer of the server is malformed ({error}): check that it is a"
            " deadletter server, and not newer than this client"
        ) from error


def part(name: str) -> str:
    """Return a name as one part of a path, quoted."""
    if name in {"", ".", ".."}:  # these would change the path, even quoted
        raise NotFound(f"there is nothing called {name!r}")
    return quote(name, safe="")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"the URL of a server must look like http://127.0.0.1:8418, got {url[:80]!r}"
        )
    if parts.username or parts.password:
        raise ConfigError("the URL of a server must not contain a password: give a token instead")
    return url.rstrip("/")


def _bearer(token: str) -> str:
    if not is_word(token):  # an error of httpx would contain the token
        raise ConfigError(
            "the token must be one word of ASCII: remove spaces and line breaks from it"
        )
    return f"Bearer {token}"


def _query_params(params: Params | None) -> dict[str, str | list[str]]:
    """Return the parameters that are not None, as text; booleans as in JSON."""
    given = {name: _parameter(value) for name, value in (params or {}).items() if value is not None}
    length = len(urlencode(given, doseq=True))
    if length > _LONGEST_QUERY:
        raise ConfigError(
            f"the search takes {length:,} characters in a URL, and at most"
            f" {_LONGEST_QUERY:,} are allowed: shorten it, such as to the beginning of an id"
        )
    return given


def _parameter(value: str | int | bool | Sequence[str]) -> str | list[str]:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else list(value)
