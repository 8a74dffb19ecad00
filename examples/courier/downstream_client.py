"""The client of the downstream system, and its answers as errors."""

import errno
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .event import Event, encoded

_LONGEST: Final = 300  # characters of its message


class DownstreamFailed(Exception):
    """The event was not accepted; `code` and `status_code` are for the classifier."""

    def __init__(self, text: str, *, code: str = "", status: int | None = None) -> None:
        super().__init__(text)
        self.code = code or None
        self.status_code = status
        self.retry_after: str | None = None


class _ErrorBody(Struct, frozen=True):
    """The body of an error response, as far as it is known."""

    code: str = ""
    message: str = ""


class Downstream:
    """The downstream system, over HTTP."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self._url = url
        self._client = httpx.AsyncClient(timeout=seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def hand_over(self, event: Event, *, attempt: int) -> None:
        """Send an event with its idempotency key. Raises DownstreamFailed if that fails."""
        told = replace(event, attempt=attempt, signature_meta=None)
        try:
            answer = await self._client.post(
                self._url,
                content=encoded(told),
                headers={
                    "content-type": "application/json",
                    "idempotency-key": event.idempotency_key,
                    "x-trace-id": event.trace_id,
                },
            )
        except httpx.TimeoutException as error:
            text = f"no answer in time: {type(error).__name__}"
            raise DownstreamFailed(text, code="DOWNSTREAM_TIMEOUT") from error
        except httpx.TransportError as error:
            text = f"not reached: {error}"
            raise DownstreamFailed(text, code=_network_code(error)) from error
        if not answer.is_success:
            raise _refusal(answer)


def _refusal(answer: httpx.Response) -> DownstreamFailed:
    try:
        said = msgspec.json.decode(answer.content, type=_ErrorBody)
    except msgspec.MsgspecError:
        said = _ErrorBody()
    text = f"answered {answer.status_code}: {said.message[:_LONGEST]}"
    error = DownstreamFailed(text, code=said.code, status=answer.status_code)
    error.retry_after = answer.headers.get("retry-after")
    return error


def _network_code(error: BaseException) -> str:
    """Return the name of the network error, such as ECONNREFUSED."""
    for one in _causes(error):
        if isinstance(one, OSError) and one.errno is not None:
            return errno.errorcode.get(one.errno, "")
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
