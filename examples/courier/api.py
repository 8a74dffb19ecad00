"""
gateway-api: checks the events of couriers and queues them before it answers 202.

    POST /v1/events/courier     202, or 400, 401, 413, 415, 503 as problem+json
    GET  /health                200 when the queue answers, else 503

The gateway looks nothing up. The worker finds duplicates, which keeps answers quick and the
same for everybody.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import msgspec
import uvicorn
from litestar import Litestar, Request, Response, get, post
from litestar.exceptions import HTTPException
from msgspec import Struct

from deadletter import App, Profile

from . import problems
from .event import Event, Reported, encoded, queued, reported
from .intake import JSON, Intake
from .problems import Problem
from .settings import Settings, of_this_process
from .signatures import InvalidSignature, verified

PATH: Final = "/v1/events/courier"
_LONGEST_ID: Final = 128


class Accepted(Struct, frozen=True, rename="camel"):
    """The answer to a courier once its event is queued."""

    event_id: str
    idempotency_key: str
    trace_id: str
    status: str = "queued"


class Gateway:
    """Checks requests and queues their events."""

    def __init__(self, settings: Settings, intake: Intake, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._intake = intake
        self._clock = clock

    async def take_in(self, request: Request[Any, Any, Any]) -> Event:
        """Queue the event of a request and return it. Raises Problem if it is rejected."""
        if request.content_type[0] != JSON:
            raise Problem(415, "UNSUPPORTED_MEDIA_TYPE", f"Send {JSON}.")
        body, now = await request.body(), self._clock()
        settings = self._settings
        try:
            signed = verified(
                settings.courier_secret,
                request.headers,
                body,
                now=now,
                window=settings.signature_window_seconds,
            )
        except InvalidSignature:
            raise Problem(
                401, "INVALID_SIGNATURE", "The signature does not fit these bytes at this time."
            ) from None
        event = queued(
            _read(body),
            trace_id=_trace(request),
            signed=signed,
            received_at=datetime.fromtimestamp(int(now), UTC),
        )
        await self._intake.put(event)
        return event


def _read(body: bytes) -> Reported:
    try:
        body.decode()  # the payload is not decoded elsewhere
        return reported.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "INVALID_PAYLOAD", f"Not an event: {error}.") from None


def _trace(request: Request[Any, Any, Any]) -> str:
    given = request.headers.get("x-request-id", "")
    is_fit = given.isascii() and given.isprintable() and len(given) <= _LONGEST_ID
    return given if given and is_fit else f"req_{uuid4().hex}"


def build(settings: Settings, intake: Intake, clock: Callable[[], float] = time.time) -> Litestar:
    """Return the gateway as an ASGI application, which closes the intake when it stops."""
    gateway = Gateway(settings, intake, clock)

    @post(PATH, status_code=202)
    async def ingest(request: Request[Any, Any, Any]) -> Response[bytes]:
        event = await gateway.take_in(request)
        told = Accepted(event.event_id, event.idempotency_key, event.trace_id)
        return Response(encoded(told), media_type=JSON)

    @get("/health")
    async def health() -> Response[dict[str, str]]:
        if await intake.is_ready():
            return Response({"status": "ok"})
        return Response({"status": "queue unreachable"}, status_code=503)

    return Litestar(
        [ingest, health],
        on_shutdown=[intake.close],
        openapi_config=None,
        request_max_body_size=settings.max_body_bytes,
        exception_handlers={Problem: problems.answer, HTTPException: problems.answer_http},
    )


def intake_of(settings: Settings, profile: Profile) -> Intake:
    """Return the intake. The gateway only sends, so it needs no office."""
    app = App(settings.queue_url, office="memory://", office_durability="none")
    return Intake(app, profile)


def main() -> None:
    """Serve until interrupted."""
    settings, profile = of_this_process()
    uvicorn.run(
        build(settings, intake_of(settings, profile)),
        host=settings.api_host,
        port=settings.api_port,
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
