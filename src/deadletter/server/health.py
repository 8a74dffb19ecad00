"""
Health for probes and people, and metrics for Prometheus.

    GET /health/live     200 while requests are answered
    GET /health/ready    200, or 503 if a loop has stalled or no letter can be stored
    GET /health          health+json: pass, warn or fail, and why; letters that pile up
                         or wait too long for an outcome are a warning
    GET /metrics         metrics of the server and the office

Health checks write nothing: an office that answers can store letters. They need no token,
so names of mailboxes are left out where access is on. Metrics name mailboxes and errors:
where access is on, they need a token that may read everything, unless `serve.metrics` is
open.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

from litestar import Request, Response, get
from litestar.exceptions import PermissionDeniedException
from msgspec import Struct
from prometheus_client.exposition import choose_encoder

from deadletter.core.access import Role
from deadletter.core.campaign import LONG_WAIT, together
from deadletter.core.errors import BackendError
from deadletter.core.letter import still_open
from deadletter.core.text import encode_document
from deadletter.observe.office_metrics import OfficeMetrics
from deadletter.office.stats import waiting
from deadletter.office.verify import mismatch
from deadletter.output import dropped_lines, dropped_note
from deadletter.runtime.health import DEPTH_THRESHOLD, Complaint
from deadletter.server.auth.guards import admit

from .context import Here, ServerContext

METRICS_AGE: Final = 5.0  # seconds until metrics are computed again


class Meter:
    """The metrics of one server, computed at most every few seconds."""

    def __init__(self, context: ServerContext) -> None:
        self._clock = context.clock
        broker = context.engine.broker
        adds_up = partial(mismatch, broker) if broker.features.tallies else None
        self._office = OfficeMetrics(
            context.metrics, context.store, context.clock, mismatch=adds_up
        )
        self._asking = asyncio.Lock()
        self._asked: float | None = None

    async def refresh(self) -> None:
        """Compute the metrics of the office, unless they are recent."""
        async with self._asking:
            now = self._clock.monotonic()
            if self._asked is None or now - self._asked >= METRICS_AGE:
                await self._office.refresh()
                self._asked = self._clock.monotonic()


@get("/metrics", include_in_schema=False)
async def metrics(request: Request[Any, Any, Any], context: Here) -> Response[bytes]:
    """Return all metrics as text."""
    if context.access is not None and context.settings.serve.metrics == "token":
        who = await admit(request, Role.READER)
        if who.sources:
            raise PermissionDeniedException(
                "metrics cover all mailboxes: use a token without a limit to mailboxes"
            )
    state = request.app.state
    if "meter" not in state:
        state.meter = Meter(context)
    await state.meter.refresh()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(context.metrics), media_type=content_type)


PATIENCE: Final = 5.0  # seconds for the office to answer
CHECK_AGE: Final = 1.0  # seconds until checks run again
MOST: Final = 20  # mailboxes in the answer, those with most letters first
MEDIA_TYPE: Final = "application/health+json"
UNNAMED: Final = "*"


class Status(StrEnum):
    """Status of a check."""

    PASS = "pass"  # noqa: S105 -- no password
    WARN = "warn"  # it works, but a person should look
    FAIL = "fail"


class Check(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of one check."""

    status: Status
    component_id: str = ""
    component_type: str = "component"
    observed_value: float | None = None
    observed_unit: str = ""
    output: str = ""


class Deepest(Struct, frozen=True, kw_only=True):
    """The mailbox with the most open letters."""

    name: str
    depth: int
    threshold: int
    status: str  # healthy, degraded


class Health(Struct, frozen=True, kw_only=True):
    """The health of the server, with all checks."""

    status: Status
    dlq: Deepest | None
    checks: dict[str, list[Check]]


class Office(Struct, frozen=True):
    """The state of the office: numbers of open letters, or the error."""

    depths: Mapping[str, int]
    seconds: float = 0.0
    trouble: str = ""
    held_back: Mapping[str, str] = {}  # mailboxes whose brake is open, and why
    unsettled: int = 0  # letters that wait for the outcome of a replay
    waited: timedelta | None = None  # the time that the oldest of them has waited


class Probe:
    """The state of the office, queried at most once per second."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._asking = asyncio.Lock()
        self._asked: float | None = None
        self._office = Office({})

    async def office(self) -> Office:
        """Return the health of the office, at most a moment old."""
        async with self._asking:
            now = self._context.clock.monotonic()
            if self._asked is None or now - self._asked >= CHECK_AGE:
                self._office = await self._ask(now)
                self._asked = self._context.clock.monotonic()
            return self._office

    async def _ask(self, began: float) -> Office:
        try:
            async with asyncio.timeout(PATIENCE):
                counts = await self._context.store.counts()
                outages = await self._context.office.mailboxes.outages(only_open=True)
                letters, since = together(await waiting(self._context.store, counts))
        except (BackendError, TimeoutError) as error:
            # The text of the error can contain addresses, so only its type is shown.
            return Office({}, trouble=f"the office does not answer: {type(error).__name__}")
        depths = {source: still_open(states) for source, states in counts.items()}
        held_back = {one.window.mailbox: one.window.text for one in outages}
        waited = None if since is None else self._context.clock.now() - since
        return Office(
            depths,
            self._context.clock.monotonic() - began,
            held_back=held_back,
            unsettled=letters,
            waited=waited,
        )


@get("/health/live", include_in_schema=False)
async def live() -> Response[bytes]:
    """Answer that the server runs."""
    return _answer({"status": Status.PASS}, Status.PASS)


@get("/health/ready", include_in_schema=False)
async def ready(request: Request[Any, Any, Any], context: Here) -> Response[bytes]:
    """Answer whether the server accepts requests."""
    office = await probe_of(request, context).office()
    failed = bool(context.complaints()) or bool(office.trouble)
    status = Status.FAIL if failed else Status.PASS
    return _answer({"status": status}, status)


@get("/health", include_in_schema=False)
async def health(request: Request[Any, Any, Any], context: Here) -> Response[bytes]:
    """Return the health of every part, with reasons."""
    office = await probe_of(request, context).office()
    result = judge(
        office,
        context.complaints(),
        named=context.access is None,
        threshold=context.settings.depth_threshold,
        dropped=_of_output(context.clock.now()),
    )
    return _answer(result, result.status)


def judge(
    office: Office,
    complaints: Sequence[Complaint],
    *,
    named: bool,
    threshold: int = DEPTH_THRESHOLD,
    dropped: Check | None = None,
) -> Health:
    """Return the overall health; with names of mailboxes and reasons only on request."""
    checks = {"office:deadLetters": [_of_office(office)]}
    depths = sorted(office.depths.items(), key=lambda item: (-item[1], item[0]))
    if depths:
        checks["mailbox:openLetters"] = [
            _of_depth(name if named else UNNAMED, depth, threshold)
            for name, depth in depths[: MOST if named else 1]
        ]
    if dropped is not None:
        checks["output:linesDropped"] = [dropped]
    if office.held_back:
        checks["mailbox:brake"] = [
            Check(
                status=Status.WARN,
                component_id=name if named else UNNAMED,
                output=why if named else "",
            )
            for name, why in sorted(office.held_back.items())[: MOST if named else 1]
        ]
    if office.unsettled:
        checks["replay:unsettledLetters"] = [_of_unsettled(office)]
    if complaints:
        checks["loop:running"] = [
            Check(
                status=Status.FAIL,
                component_id=one.loop if named else UNNAMED,
                output=one.reason if named else "",
            )
            for one in complaints
        ]
    every = [check.status for some in checks.values() for check in some]
    worst = next(s for s in (Status.FAIL, Status.WARN, Status.PASS) if s in every)
    deepest = _deepest(depths, threshold, named=named)
    return Health(status=worst, dlq=deepest, checks=checks)


def _deepest(depths: Sequence[tuple[str, int]], threshold: int, *, named: bool) -> Deepest | None:
    if not depths:
        return None
    name, depth = depths[0]
    return Deepest(
        name=name if named else UNNAMED,
        depth=depth,
        threshold=threshold,
        status="healthy" if depth < threshold else "degraded",
    )


def _of_office(office: Office) -> Check:
    if office.trouble:
        return Check(status=Status.FAIL, component_type="datastore", output=office.trouble)
    return Check(
        status=Status.PASS,
        component_type="datastore",
        observed_value=round(office.seconds, 6),
        observed_unit="s",
    )


def _of_output(now: datetime) -> Check | None:
    """Return a check about dropped lines of output, which never fails."""
    note = dropped_note(now)
    if note is None:
        return None
    return Check(
        status=Status.PASS, observed_value=dropped_lines(), observed_unit="lines", output=note
    )


def _of_depth(name: str, depth: int, threshold: int) -> Check:
    return Check(
        status=Status.PASS if depth < threshold else Status.WARN,
        component_id=name,
        observed_value=depth,
        observed_unit="letters",
        output="" if depth < threshold else f"{threshold} or more open letters",
    )


def _of_unsettled(office: Office) -> Check:
    too_long = office.waited is not None and office.waited > LONG_WAIT
    seconds = 0.0 if office.waited is None else office.waited.total_seconds()
    return Check(
        status=Status.WARN if too_long else Status.PASS,
        observed_value=office.unsettled,
        observed_unit="letters",
        output=f"the oldest has waited for an outcome for {seconds:.0f} s",
    )


def probe_of(request: Request[Any, Any, Any], context: ServerContext) -> Probe:
    """Return the probe of this server."""
    state = request.app.state
    if "probe" not in state:
        state.probe = Probe(context)
    known: Probe = state.probe
    return known


def _answer(body: object, status: Status) -> Response[bytes]:
    return Response(
        encode_document(body),
        status_code=503 if status is Status.FAIL else 200,
        media_type=MEDIA_TYPE,
        headers={"cache-control": "no-store"},
    )


routes: Final = [health, live, ready, metrics]
