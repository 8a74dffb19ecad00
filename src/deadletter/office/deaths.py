"""Deaths over time, and the marks that explain them: versions, outages and replays."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from deadletter.core.brake import BrakeWindow, merged
from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.deaths import (
    HOUR,
    By,
    DeathCount,
    DeathFilter,
    FirstSeen,
    check_request,
    floor,
    series,
    step_for,
    when,
)
from deadletter.core.errors import ConfigError, QueryError
from deadletter.core.query.ast import Op
from deadletter.core.query.fields import FIELDS, before, duration, time_span, written
from deadletter.core.text import clean
from deadletter.ports import Clock, DeathCounting, LetterStore

SPAN: Final = timedelta(hours=24)
"""The span of a chart, unless another is asked for."""
NAMES: Final = 5
"""The names that a chart tells apart, unless more are asked for; others count together."""
MOST_NAMES: Final = 100

_CAMPAIGNS: Final = 200  # the latest, which are looked at
_WINDOWS: Final = 1_000
_LONGEST: Final = 200  # characters of a mark's text


class DeathChart(Struct, frozen=True, kw_only=True):
    """
    Deaths over time, in steps.

    `counts` leaves out steps without deaths. Names with few deaths are counted together, under
    an empty name.
    """

    since: datetime
    until: datetime
    step: float  # seconds
    by: By
    total: int
    counts: tuple[DeathCount, ...]

    def series(self) -> dict[str, tuple[int, ...]]:
        """Return the numbers of each name by step, with zeros; most deaths first."""
        step = timedelta(seconds=self.step)
        request = DeathFilter(since=self.since, until=self.until, step=step, by=self.by)
        return series(self.counts, request)


class MarkKind(StrEnum):
    """What a mark in a chart of deaths shows."""

    VERSION = "version"  # of an application, first seen
    OUTAGE = "outage"  # workers stopped receiving
    REPLAY = "replay"


class Mark(Struct, frozen=True, kw_only=True):
    """Something that happened while letters died; `until` is its end, if it has one."""

    kind: MarkKind
    at: datetime
    until: datetime | None = None
    mailbox: str = ""  # empty: not one alone
    name: str  # the version, or the id of the window or replay
    text: str  # in a few words


async def chart_deaths(
    store: LetterStore,
    clock: Clock,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    step: timedelta | None = None,
    by: By = By.NONE,
    sources: Sequence[str] = (),
    groups: Sequence[str] = (),
    most: int = NAMES,
) -> DeathChart:
    """
    Return deaths over time, by default of the last 24 hours in steps of five minutes.

    The chart covers whole steps: without `until`, it ends with the current one.

    Raises ConfigError for an office that does not count them.
    """
    now = clock.now()
    since = since or before(until or now, SPAN)
    step = step or step_for((until or now) - since, now - since)
    request = DeathFilter(
        since=since,
        until=until or _end(now, step),
        step=step,
        by=by,
        sources=tuple(sources),
        groups=tuple(groups),
        most=most,
    )
    check_request(request, now)
    counts = tuple(await _counting(store).deaths(request))
    return DeathChart(
        since=since,
        until=request.until,
        step=step.total_seconds(),
        by=by,
        total=sum(one.n for one in counts),
        counts=counts,
    )


def by_hour(chart: DeathChart) -> tuple[int, ...]:
    """Return the deaths of the last 24 hours of a chart, the current hour last."""
    hours = series(
        (structs.replace(one, name="") for one in chart.counts),
        DeathFilter(since=chart.since, until=chart.until, step=timedelta(seconds=HOUR)),
    )
    return hours.get("", (0,) * 24)[-24:]


def deaths_since(chart: DeathChart, since: datetime) -> int:
    """Return the deaths since a time, to the step that it is in."""
    start = floor(int(since.timestamp()), int(chart.step))
    return sum(one.n for one in chart.counts if one.at.timestamp() >= start)


def moment(text: str, now: datetime) -> datetime:
    """
    Return the time that a text gives: a time, or a duration before now such as `24h`.

    Raises ConfigError for any other text.
    """
    try:
        value = written(FIELDS["since"], Op.IS, text)
    except (ValueError, QueryError) as error:
        raise ConfigError(str(error)) from error
    ago = duration(value)
    return time_span(value)[0] if ago is None else before(now, ago)


def step_called(text: str) -> timedelta:
    """Return a step that is written as `5m`, `1h` or `1d`."""
    step = duration(text)
    if step is None:
        raise ConfigError(f"`step` must be 5m, 1h or 1d, got {clean(text[:40])!r}")
    return step


async def find_marks(
    store: LetterStore,
    clock: Clock,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    sources: Collection[str] = (),
    owner: str | None = None,
) -> list[Mark]:
    """
    Return what happened in a span, earliest first.

    Those limited to `sources` see versions and outages of these, and replays of `owner`.
    """
    now = clock.now()
    until = until or now
    since = since or before(until, SPAN)
    seen: Sequence[FirstSeen] = ()
    if isinstance(store, DeathCounting):
        seen = await store.versions(since, until)
    windows = await store.windows(limit=_WINDOWS)
    campaigns = await store.campaigns(limit=_CAMPAIGNS, owner=owner)
    found = [
        *_versions(one for one in seen if not sources or one.source in sources),
        *_outages(merged(one for one in windows if not sources or one.mailbox in sources), now),
        *_replays(campaigns),
    ]
    inside = [one for one in found if one.at < until and (one.until or one.at) >= since]
    return sorted(inside, key=lambda one: (one.at, one.kind, one.name))


def _end(now: datetime, step: timedelta) -> datetime:
    seconds = max(int(step.total_seconds()), 1)
    return when(floor(int(now.timestamp()), seconds) + seconds)


def _versions(seen: Iterable[FirstSeen]) -> list[Mark]:
    return [
        Mark(
            kind=MarkKind.VERSION,
            at=one.at,
            mailbox=one.source,
            name=one.version,
            text=_short(f"{one.version} first seen at {one.source}"),
        )
        for one in seen
    ]


def _outages(windows: Iterable[BrakeWindow], now: datetime) -> list[Mark]:
    return [
        Mark(
            kind=MarkKind.OUTAGE,
            at=one.opened_at,
            until=one.until if one.closed_at is not None else max(one.until, now),
            mailbox=one.mailbox,
            name=one.id,
            text=_short(one.text),
        )
        for one in windows
    ]


def _replays(campaigns: Iterable[Campaign]) -> list[Mark]:
    return [
        Mark(
            kind=MarkKind.REPLAY,
            at=one.created_at,
            name=one.id,
            text=_short(f"replay of {one.query or 'everything'}, {one.state}"),
        )
        for one in campaigns
        if one.state is not CampaignState.PLANNED
    ]


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _counting(store: LetterStore) -> DeathCounting:
    if isinstance(store, DeathCounting):
        return store
    raise ConfigError(
        f"an office in {store.features.engine} does not count deaths over time: use one in"
        " SQLite or PostgreSQL"
    )
