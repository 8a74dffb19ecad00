"""Requests to a server: retries, responses and errors."""

import asyncio
from collections.abc import AsyncIterator, Mapping
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
_PERHAPS: Final = frozenset({502, 504})  # a proxy's: something may have been done

_LONGEST_WAIT: Final = 60.0  # seconds; a server that asks for more is not waited for
_NO_ROUTE: Final = "urn:deadletter:problem:no-route"
_ENGINE: Final = "urn:deadletter:problem:engine"
_IN_PROGRESS: Final = "urn:deadletter:problem:in-progress"  # the same, sent before


class Later(Unavailable):
    """A server that is there said: not now, and nothing was done."""


class Unreachable(Unavailable):
    """Nobody answers there, or the connection broke off."""


class Unauthenticated(Refused):
    """The server does not know who asks: there is no token, or it is not good."""


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
    if problem.type == _NO_ROUTE or (status == 404 and _text(problem) in {"", _phrase(status)}):
        # Ours says what is not there. This one does not even know such requests.
        place = response.url.copy_with(query=None)
        return ConfigError(f"there is nothing at {place}: is a deadletter server there?")
    if problem.type == _ENGINE:
        return Refused(text)
    if status in _LATER:
        return Later(text)
    if status in _PERHAPS or problem.type == _IN_PROGRESS:
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


T = TypeVar("T")
Params = Mapping[str, str | int | bool | None]

API: Final = "/api/v1"
ATTEMPTS: Final = 4
_LONGEST_QUERY: Final = 65_536  # characters of a URL's query that httpx takes
TIMEOUT: Final = 30.0  # seconds without a sign of life
IDEMPOTENCY_KEY: Final = "idempotency-key"
REASON: Final = "dlq-reason"
_JSON: Final = {"content-type": "application/json"}
_BACKOFF: Final = Exponential(0.2, cap=10.0, jitter=0.5)


class Connection:
    """
    One server, and who asks it.

    Requests that change nothing, or carry an idempotency key, are sent again when
    the server says "later" or cannot be reached; others only where it is sure that
    nothing was done.
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
            follow_redirects=False,  # a token goes where it was meant to go
        )

    async def close(self) -> None:
        """Let go of the server."""
        await self._http.aclose()

    async def get(self, path: str, kind: type[T], **params: Any) -> T:
        """Send GET and return the answer as a value of this type."""
        response = await self.send("GET", path, params=params, again=True)
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
        """Have something done once, however often it has to be asked for."""
        key = {IDEMPOTENCY_KEY: self._dice.new_id()}
        response = await self.send(
            method,
            path,
            params=params,
            content=encode_document(value),
            headers=_JSON | key | dict(headers or {}),
            again=True,
        )
        return decoded(response, kind)

    async def delete(self, path: str, kind: type[T], **params: Any) -> T:
        """Have something gone."""
        response = await self.send("DELETE", path, params=params, again=True)
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
        """A call of the queue wire, which knows no keys; `wait` is what it may take."""
        # A header has one line.
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
        timeout: float | None = None,  # noqa: ASYNC109 -- of silence, not of the whole
        again: bool = False,
        patient: bool = True,
    ) -> httpx.Response:
        """
        A response with a status of success; any other is raised as our error.

        With `again` it may be sent again after a connection broke off half-way;
        unless `patient`, "later" is an answer.
        """
        request = self._http.build_request(
            method,
            path,
            params=_given(params),
            content=content,
            headers=httpx.Headers(dict(headers or {}), encoding="utf-8"),
            timeout=httpx.USE_CLIENT_DEFAULT if timeout is None else timeout,
        )
        attempt = 1
        while True:
            failed, wait = await self._try(request, again=again)
            if isinstance(failed, httpx.Response):
                return failed
            is_answer = isinstance(failed, Later) and not patient
            if wait is None or is_answer or attempt >= self.attempts:
                raise failed
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
        timeout: float | None = None,  # noqa: ASYNC109 -- of silence, not of the whole
    ) -> AsyncIterator[httpx.Response]:
        """A response that is read bit by bit."""
        silence = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        try:
            async with self._http.stream(
                "GET", path, params=_given(params), headers=dict(headers or {}), timeout=silence
            ) as response:
                if not response.is_success:
                    await response.aread()
                    raise error_of(response)
                yield response
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def _try(
        self, request: httpx.Request, *, again: bool
    ) -> tuple[httpx.Response | Exception, float | None]:
        """The response; or what is wrong, and how long to wait if it is worth it."""
        try:
            response = await self._http.send(request)
        except httpx.TransportError as error:
            sure = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            return self._unreachable(error), 0.0 if sure or again else None
        if response.is_success:
            return response, None
        failed = error_of(response)
        worth = Unavailable if again else Later
        if isinstance(failed, worth):
            return failed, wait_of(response) or 0.0
        return failed, None

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        told = str(error) or type(error).__name__
        return Unreachable(f"the server at {self.url} cannot be reached: {told}")


class Connected:
    """Behind a connection; closed by `close`, or at the end of `async with`."""

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
        """Let go of the server."""
        await self._connection.close()


def decoded(response: httpx.Response, kind: type[T]) -> T:
    """A response's body as a value of this type."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(
            f"the server's answer cannot be read ({error}): is it a deadletter server,"
            " and not a newer one?"
        ) from error


def part(name: str) -> str:
    """A name as one part of a path, whatever is in it."""
    if name in {"", ".", ".."}:  # which lead elsewhere, however they are written
        raise NotFound(f"there is nothing called {name!r}")
    return quote(name, safe="")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"a server is named like http://127.0.0.1:8418, not {url[:80]!r}")
    if parts.username or parts.password:
        raise ConfigError("a server's URL holds no password: give a token instead")
    return url.rstrip("/")


def _bearer(token: str) -> str:
    if not is_word(token):  # which httpx would show to everybody
        raise ConfigError(
            "the token is not one word of ASCII: is there a space or a line break in it?"
        )
    return f"Bearer {token}"


def _given(params: Params | None) -> dict[str, str]:
    """Return the parameters that are not None, as text; booleans as in JSON."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (params or {}).items()
        if value is not None
    }
    if len(urlencode(given)) > _LONGEST_QUERY:
        raise ConfigError(
            f"what is asked has {len(urlencode(given)):,} characters in a URL, and may"
            f" have {_LONGEST_QUERY:,}: search for less, such as the beginning of an id"
        )
    return given
