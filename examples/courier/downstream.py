"""
A stand-in for the downstream system, over real HTTP, that fails on request.

    POST /events    takes an event: 200, or the fault that was set
    POST /faults    {"eventId": "evt_1", "status": 503, "code": "…", "times": 2}
                    {"eventId": "*", "delayMs": 5000}; times 0 means always
    DELETE /faults  removes all faults
    GET  /events    the events that came, in order, and the answers
"""

import asyncio
import os
from typing import Any, Final

import msgspec
import uvicorn
from litestar import Litestar, Request, Response, delete, get, post
from litestar.params import JSONBody
from msgspec import Struct, field

from .event import Event

EVERY: Final = "*"
events_of: Final = msgspec.json.Decoder(Event)


class Fault(Struct, kw_only=True, rename="camel"):
    """A failure of an event, and how often it happens."""

    event_id: str = EVERY
    status: int = 200
    code: str = ""
    message: str = ""
    delay_ms: float = 0.0
    times: int = 0
    retry_after: str | None = None


class Seen(Struct, frozen=True, kw_only=True, rename="camel"):
    """An event that came, and the answer to it."""

    event_id: str
    attempt: int | None
    key: str | None
    trace_id: str | None
    status: int


class Stand(Struct):
    """The state of the stand-in."""

    faults: list[Fault] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def next_fault(self, event_id: str) -> Fault | None:
        """Return the fault for this event, and count it."""
        for fault in self.faults:
            if fault.event_id in (EVERY, event_id):
                if fault.times == 1:
                    self.faults.remove(fault)
                fault.times -= fault.times > 1
                return fault
        return None


def build(stand: Stand) -> Litestar:
    """Return the stand-in as an ASGI application."""

    @post("/events", status_code=200)
    async def take(request: Request[Any, Any, Any]) -> Response[Any]:
        data = events_of.decode(await request.body())
        fault = stand.next_fault(data.event_id)
        status = fault.status if fault else 200
        stand.seen.append(
            Seen(
                event_id=data.event_id,
                attempt=data.attempt,
                key=request.headers.get("idempotency-key"),
                trace_id=request.headers.get("x-trace-id"),
                status=status,
            )
        )
        if fault is None:
            return Response({"taken": data.event_id})
        await asyncio.sleep(fault.delay_ms / 1000)
        after = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        said = {"code": fault.code, "message": fault.message}
        return Response(said, status_code=status, headers=after)

    @get("/events")
    async def events() -> list[Seen]:
        return stand.seen

    @post("/faults")
    async def fail(data: JSONBody[Fault]) -> None:
        stand.faults.append(data)

    @delete("/faults")
    async def mend() -> None:
        stand.faults.clear()

    return Litestar([take, events, fail, mend], openapi_config=None)


def main() -> None:
    """Serve until interrupted."""
    uvicorn.run(
        build(Stand()),
        host="127.0.0.1",
        port=int(os.environ.get("DOWNSTREAM_PORT", "8090")),
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
