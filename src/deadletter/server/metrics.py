"""
GET /metrics, for Prometheus.

Names of mailboxes and errors are in it: where callers must show a token, one that
may read everything is asked for here as well, unless `serve.metrics` is open.
"""

import asyncio
from functools import partial
from typing import Any, Final

from litestar import Request, Response, get
from litestar.exceptions import PermissionDeniedException
from prometheus_client.exposition import choose_encoder

from deadletter.core.access import Role
from deadletter.observe.office_metrics import OfficeMetrics
from deadletter.office.verify import mismatch
from deadletter.server.auth.guards import admit

from .context import Here, Place

FRESH: Final = 5.0  # seconds an answer of the office is good for


class Meter:
    """The numbers of one place, asked for at most every few seconds."""

    def __init__(self, place: Place) -> None:
        self._clock = place.clock
        broker = place.engine.broker
        adds_up = partial(mismatch, broker) if broker.features.tallies else None
        self._office = OfficeMetrics(place.metrics, place.store, place.clock, mismatch=adds_up)
        self._asking = asyncio.Lock()
        self._asked: float | None = None

    async def refresh(self) -> None:
        """Ask the office, unless somebody has just done so."""
        async with self._asking:
            now = self._clock.monotonic()
            if self._asked is None or now - self._asked >= FRESH:
                await self._office.refresh()
                self._asked = self._clock.monotonic()


@get("/metrics", include_in_schema=False)
async def metrics(request: Request[Any, Any, Any], place: Here) -> Response[bytes]:
    """Everything that is counted, as text."""
    if place.access is not None and place.settings.serve.metrics == "token":
        who = await admit(request, Role.READER)
        if who.sources:
            raise PermissionDeniedException("metrics are about all mailboxes")
    state = request.app.state
    if "meter" not in state:
        state.meter = Meter(place)
    await state.meter.refresh()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(place.metrics), media_type=content_type)


routes: Final = [metrics]
