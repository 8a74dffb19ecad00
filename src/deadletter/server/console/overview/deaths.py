"""Deaths over time on the overview: the chart, its marks, and a span that somebody chose."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.deaths import By, step_for
from deadletter.core.errors import ConfigError, Conflict, NotFound, QueryError
from deadletter.core.letter import error_name
from deadletter.core.text import cut
from deadletter.office.deaths import DeathChart, Mark, MarkKind, moment
from deadletter.office.groups import get_group
from deadletter.office.triage.facets import term_text
from deadletter.server.console.charts import SERIES, ChartMark, Plot, Series
from deadletter.server.console.pages import path_to

from .sight import Sight

_LONGEST: Final = 70  # characters of a name
_MARKS: Final = 30  # in the chart
_LISTED: Final = 12  # marks in words
_NAMES_LAST: Final = 60.0  # seconds
_MINUTES: Final = len("2026-11-19T12:40")
_LOCAL: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_REST: Final = {By.GROUP: "others", By.SOURCE: "others", By.VERSION: "unknown version or others"}


class Span(StrEnum):
    """The spans of the chart."""

    HOUR = "1h"
    SHIFT = "6h"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"


_SPANS: Final[dict[Span, tuple[timedelta, timedelta, int]]] = {
    # The span, the step that is counted, and how many of these are one step of the chart.
    Span.HOUR: (timedelta(hours=1), timedelta(minutes=5), 1),
    Span.SHIFT: (timedelta(hours=6), timedelta(minutes=5), 1),
    Span.DAY: (timedelta(hours=24), timedelta(minutes=5), 1),
    Span.WEEK: (timedelta(days=7), timedelta(hours=1), 1),
    Span.MONTH: (timedelta(days=30), timedelta(hours=1), 6),
}
_STEPS: Final = {
    Span.HOUR: "5 minutes",
    Span.SHIFT: "5 minutes",
    Span.DAY: "5 minutes",
    Span.WEEK: "hour",
    Span.MONTH: "6 hours",
}


class MarkRow(Struct, frozen=True, kw_only=True):
    """A mark of the chart in words, with a link to what it is about."""

    kind: str
    at: datetime
    text: str
    link: str
    link_text: str
    span: str = ""  # the path that chooses its span in the chart


class Deaths(Struct, frozen=True, kw_only=True):
    """The chart of the overview; without a plot, `missing` says why."""

    span: Span
    by: By
    unit: str
    plot: Plot | None = None
    marks: tuple[MarkRow, ...] = ()
    missing: str = ""

    @property
    def spans(self) -> tuple[tuple[str, str, None, bool], ...]:
        """Return the spans as tabs."""
        return tuple((one.value, self.path(span=one), None, one is self.span) for one in Span)

    @property
    def ways(self) -> tuple[tuple[str, str, None, bool], ...]:
        """Return what deaths can be told apart by, as tabs."""
        words = {By.GROUP: "by group", By.SOURCE: "by mailbox", By.VERSION: "by version"}
        return tuple((word, self.path(by=by), None, by is self.by) for by, word in words.items())

    def path(self, span: str = "", by: str = "", part: str = "") -> str:
        """Return the overview with another span, or told apart by something else."""
        return path_to("", span=span or self.span, by=by or self.by, part=part)


class Chosen(Struct, frozen=True, kw_only=True):
    """A span that somebody chose in the chart, and where it leads."""

    since: datetime
    until: datetime
    deaths: int
    shares: tuple[tuple[str, int], ...]
    open: int
    is_all: bool  # there are no more open letters
    letters: str  # paths
    replay: str


class Choice(Struct, frozen=True, kw_only=True):
    """The two fields of a span: what was typed, and what it is or why it is wrong."""

    begin: str = ""
    end: str = ""
    chosen: Chosen | None = None
    wrong: str = ""


async def first_span(sight: Sight) -> Span:
    """Return the span that is shown first: a day, or less in an office that is younger."""
    if not sight.context.store.features.counts_deaths:
        return Span.DAY
    if not (age := await _age(sight, Span.MONTH)) or age > _SPANS[Span.SHIFT][0]:
        return Span.DAY
    age = await _age(sight, Span.SHIFT)  # in smaller steps
    return Span.HOUR if age and age <= _SPANS[Span.HOUR][0] else Span.SHIFT


async def _age(sight: Sight, span: Span) -> timedelta | None:
    """Return how old the first step with a death in a span is."""
    length, step, _ = _SPANS[span]
    chart = await sight.chart(length, step, By.NONE)
    first = min((count.at for count in chart.counts), default=None)
    return None if first is None else sight.context.clock.now() - first


async def load_deaths(sight: Sight, span: Span, by: By) -> Deaths:
    """Return the deaths of a span, told apart by group, mailbox or version."""
    unit = _STEPS[span]
    features = sight.context.store.features
    if not features.counts_deaths:
        missing = (
            f"An office in {features.engine} does not count deaths over time."
            " Offices in SQLite and PostgreSQL do."
        )
        return Deaths(span=span, by=by, unit=unit, missing=missing)
    length, step, together = _SPANS[span]
    chart, marks = await asyncio.gather(sight.chart(length, step, by), sight.marks(length))
    names = await _names(sight, by, chart)
    plot = Plot(
        id="deaths-plot",
        title=f"Deaths per {unit}, last {span}",
        since=_begin(chart, step),
        step=step * together,
        series=_series(chart, names, together),
        marks=tuple(_mark(one) for one in _apart(marks)[-_MARKS:]),
    )
    listed = tuple(_listed(one, span, by) for one in reversed(marks[-_LISTED:]))
    return Deaths(span=span, by=by, unit=unit, plot=plot, marks=listed)


def _begin(chart: DeathChart, step: timedelta) -> datetime:
    seconds = int(step.total_seconds())
    return datetime.fromtimestamp(int(chart.since.timestamp()) // seconds * seconds, UTC)


def _series(chart: DeathChart, names: Mapping[str, str], together: int) -> tuple[Series, ...]:
    found = chart.series()
    steps = max((len(numbers) for numbers in found.values()), default=0)
    if not found:
        length = chart.until.timestamp() - _begin(chart, timedelta(seconds=chart.step)).timestamp()
        steps = max(round(length / chart.step), 1)
        found = {"": (0,) * steps}
    return tuple(
        Series(
            name=names.get(name, name),
            numbers=_folded(numbers, together),
            look=min(place, SERIES - 1) if name else SERIES,
        )
        for place, (name, numbers) in enumerate(found.items(), 1)
    )


def _folded(numbers: Sequence[int], together: int) -> tuple[int, ...]:
    return tuple(
        sum(numbers[place : place + together]) for place in range(0, len(numbers), together)
    )


async def _names(sight: Sight, by: By, chart: DeathChart) -> dict[str, str]:
    """Return how the series are called; groups by their error."""
    found = {"": _REST.get(by, "deaths")}
    if by is not By.GROUP:
        return found
    asked = [one for one in dict.fromkeys(count.name for count in chart.counts) if one]
    errors = await asyncio.gather(*(_error(sight, one) for one in asked))
    return found | dict(zip(asked, errors, strict=True))


async def _error(sight: Sight, name: str) -> str:
    try:
        group = await sight.once(
            ("group", name), lambda: get_group(sight.context.store, name), lasts=_NAMES_LAST
        )
    except (NotFound, Conflict):  # its letters were moved to another group
        return f"group {name[:10]}"
    return cut(f"{error_name(group.error_type) or 'failure'} {group.text}".strip(), _LONGEST)


def _apart(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks of a chart: a version has one, where it was seen first."""
    found: dict[tuple[str, str], Mark] = {}
    for mark in marks:
        is_version = mark.kind is MarkKind.VERSION
        found.setdefault((mark.kind, mark.name if is_version else f"{mark.at} {mark.name}"), mark)
    return list(found.values())


def _mark(mark: Mark) -> ChartMark:
    words = {MarkKind.VERSION: mark.name, MarkKind.OUTAGE: mark.mailbox}
    return ChartMark(
        kind=mark.kind.value,
        at=mark.at,
        until=mark.until,
        word=words.get(mark.kind, "replay"),
        text=mark.text,
    )


def _listed(mark: Mark, span: Span, by: By) -> MarkRow:
    chosen = ""
    match mark.kind:
        case MarkKind.VERSION:
            query = _all_of(version=mark.name, source=mark.mailbox)
            link, text = path_to("letters", q=query), "Letters"
        case MarkKind.OUTAGE:
            link, text = path_to("letters", q=f"during:{mark.name}"), "Letters"
            # What died just before the brake opened belongs to the outage as well.
            begin, end = mark.at - timedelta(minutes=5), mark.until or mark.at
            fields = {"from": _field(begin), "to": _field(end + timedelta(minutes=1))}
            chosen = path_to("", span=span, by=by, **fields) + "#chosen"
        case MarkKind.REPLAY:
            link, text = path_to("replays", mark.name), "Replay"
    about = f"{mark.mailbox}: {mark.text}" if mark.kind is MarkKind.OUTAGE else mark.text
    return MarkRow(
        kind=mark.kind.value, at=mark.at, text=about, link=link, link_text=text, span=chosen
    )


async def choose_span(sight: Sight, begin: str, end: str, by: By) -> Choice:
    """Return what a chosen span holds. Times without a zone are UTC."""
    if not begin and not end:
        return Choice()
    now = sight.context.clock.now()
    try:
        since = moment(_zoned(begin), now)
        until = moment(_zoned(end), now) if end else now
        if until <= since:
            wrong = "The end of the span must be after its beginning."
            return Choice(begin=_field(since), end=_field(until), wrong=wrong)
        chosen = await _chosen(sight, since, until, by)
    except (ConfigError, QueryError) as error:
        return Choice(begin=_typed(begin), end=_typed(end), wrong=_sentence(str(error)))
    return Choice(begin=_field(since), end=_field(until), chosen=chosen)


async def _chosen(sight: Sight, since: datetime, until: datetime, by: By) -> Chosen:
    query = span_query(since, until)
    office, sources = sight.context.office, sight.who.sources
    deaths, shares = 0, dict[str, int]()
    if sight.context.store.features.counts_deaths:
        step = step_for(until - since, sight.context.clock.now() - since)
        chart = await office.deaths(since=since, until=until, step=step, by=by, sources=sources)
        names = await _names(sight, by, chart)
        shares = {names.get(name, name): sum(n) for name, n in chart.series().items()}
        deaths = chart.total
    count = await office.letters.count(query, sources=sources)
    return Chosen(
        since=since,
        until=until,
        deaths=deaths,
        shares=tuple(shares.items()),
        open=count.letters,
        is_all=count.is_all,
        letters=path_to("letters", q=query),
        replay=path_to("replays", "new", q=query),
    )


def span_query(since: datetime, until: datetime) -> str:
    """Return the search for open letters that died in a span."""
    return f"is:open dead:>={_stamp(since)} dead:<{_stamp(until)}"


def _all_of(**terms: str) -> str:
    return " ".join(term_text(name, value) for name, value in terms.items() if value)


def _zoned(text: str) -> str:
    """Return a time of a field `datetime-local` as the search writes it."""
    text = text.strip()
    return f"{text}Z" if len(text) == _MINUTES else text


def _typed(text: str) -> str:
    """Return what a field `datetime-local` can show again; such a field has no other text."""
    return text if _LOCAL.fullmatch(text) else ""


def _field(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M}"


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
