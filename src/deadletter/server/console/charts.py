"""
Charts as SVG: sparks, bars and stacked bars.

This is the only module of the console that writes markup. Every text goes through the gate
and is escaped; colours come from classes. Places across are shares of the width, so a chart
fits any screen without a script, and its words keep their size.

A chart says what it shows in its label. Beside it, `Plot.table` has the same numbers as rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from math import floor, log10
from typing import Final, Literal

from markupsafe import Markup, escape
from msgspec import Struct

from deadletter.core.deaths import told
from deadletter.core.text import clean, cut, many

SERIES: Final = 6
"""The looks of series; the last one is grey, for all others together."""

_HEAD: Final = 18  # pixels above the plot, for marks
_PLOT: Final = 132
_FOOT: Final = 20  # pixels below the plot, for words
_CELL: Final = 10  # width of a step in units of the plot
_CROWDED: Final = 100  # steps from which bars touch each other
_NARROW: Final = 340  # pixels of the smallest chart, on which words must not meet
_LONGEST: Final = 24  # characters of such a word
_ROWS: Final = 31  # of a table
_ROUND_STEPS: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (
        *(1, 5, 15, 30, 60, 120, 300, 600, 900, 1_800),
        *(3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000),
    )
)
_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)


class Series(Struct, frozen=True, kw_only=True):
    """
    The numbers of one name by step; None where they are unknown.

    `look` is its colour and hatch, from 1 to `SERIES`.
    """

    name: str
    numbers: tuple[int | None, ...]
    look: int = 1

    @property
    def total(self) -> int:
        """Return the sum of the known numbers."""
        return sum(number or 0 for number in self.numbers)


class ChartMark(Struct, frozen=True, kw_only=True):
    """Something that happened at a time, or until another; `word` is its short name."""

    kind: Literal["version", "outage", "replay"]
    at: datetime
    until: datetime | None = None
    word: str = ""
    text: str


class Row(Struct, frozen=True):
    """One row of the table of a plot: a span of time, and the number of each series."""

    at: datetime
    until: datetime
    numbers: tuple[int | None, ...]


class Plot(Struct, frozen=True, kw_only=True):
    """
    Numbers over time, to be drawn.

    `id` is unique on its page. Before `no_data_before` nothing was counted.
    """

    id: str
    title: str
    since: datetime
    step: timedelta
    series: tuple[Series, ...]
    marks: tuple[ChartMark, ...] = ()
    one: str = "death"  # what is counted
    no_data_before: datetime | None = None

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return max((len(one.numbers) for one in self.series), default=0)

    @property
    def until(self) -> datetime:
        """Return the end of the last step."""
        return self.since + self.step * self.steps

    @property
    def totals(self) -> tuple[int | None, ...]:
        """Return the sums of all series by step; None where all of them are unknown."""
        return _totals(self)

    @property
    def total(self) -> int:
        """Return the sum of all known numbers."""
        return sum(one.total for one in self.series)

    @property
    def story(self) -> str:
        """Return in a sentence what the numbers say."""
        totals = self.totals
        known = [number for number in totals if number is not None]
        if not any(known):
            return f"{self.title}: no {self.one} in this span."
        most = max(known)
        at = self.since + self.step * totals.index(most)
        peak = f"{most:,} in {_long(self.step)} at {_moment(at, self)} UTC"
        return f"{self.title}: {many(sum(known), self.one)}; most {peak}; latest {known[-1]:,}."

    @property
    def table(self) -> tuple[Row, ...]:
        """Return the same numbers as rows, several steps together if there are many."""
        size = max(1, -(-self.steps // _ROWS))
        hour = timedelta(hours=1) // self.step if self.step < timedelta(hours=1) else 1
        size = -(-size // hour) * hour if size > 1 else size
        return tuple(
            Row(
                self.since + self.step * place,
                self.since + self.step * min(place + size, self.steps),
                tuple(_sum(one.numbers[place : place + size]) for one in self.series),
            )
            for place in range(0, self.steps, size)
        )


@lru_cache(maxsize=32)  # a chart asks for them several times
def _totals(plot: Plot) -> tuple[int | None, ...]:
    filled = [_filled(one, plot) for one in plot.series]
    return tuple(map(_sum, zip(*filled, strict=True)))


def spark(numbers: Sequence[int], unit: str = "an hour", label: str = "") -> Markup:
    """Return numbers as a small line without axes; its label tells the same in words."""
    top = max(numbers, default=0) or 1
    size = max(len(numbers) - 1, 1) * _CELL
    line = "L".join(
        f"{place * _CELL} {_short((1 - number / top) * 100)}"
        for place, number in enumerate(numbers)
    )
    line = line or f"0 100L{size} 100"
    return Markup(
        '<svg class="spark" role="img" aria-label="{label}" viewBox="0 -6 {size} 112"'
        ' preserveAspectRatio="none"><path class="under" d="M0 100L{line}L{size} 100z"></path>'
        '<path class="line" d="M{line}"></path></svg>'
    ).format(label=_safe(label or told(numbers, unit)), size=size, line=line)


def bars(plot: Plot) -> Markup:
    """Return numbers as bars; several series stand on top of each other."""
    top = _top(plot.totals)
    below: list[int] = [0] * plot.steps
    drawn = []
    for one in plot.series:
        path = _bars_path(one.numbers, below, top, plot.steps)
        drawn.append(_series(plot, one, path, top))
        below = [low + (number or 0) for low, number in zip(below, _filled(one, plot), strict=True)]
    return _framed(plot, top, drawn)


def legend(plot: Plot) -> Markup:
    """Return the names of all series with their looks and sums, as a list."""
    items = [
        Markup(
            '<li><svg class="key" aria-hidden="true" width="14" height="14">'
            '<rect class="s{look}" width="14" height="14" rx="2"></rect>{hatch}</svg>'
            '<bdi translate="no">{name}</bdi> <span class="meta">{total}</span></li>'
        ).format(
            look=one.look,
            hatch=_hatch_of(plot.id, one.look, "100%", "100%"),
            name=_safe(one.name),
            total=f"{one.total:,}",
        )
        for one in plot.series
    ]
    return Markup('<ul class="legend">{items}</ul>').format(items=_joined(items))


# The frame: lines, words, marks, and what is unknown.


def _framed(plot: Plot, top: int, drawn: Iterable[Markup]) -> Markup:
    totals = " ".join("-" if number is None else str(number) for number in plot.totals)
    return Markup(
        '<svg class="chart bars" id="{id}" role="img" aria-label="{label}" width="100%"'
        ' height="{height}" data-since="{since}" data-step="{step}" data-totals="{totals}">'
        "{hatches}{outages}{lines}{drawn}{unknown}{marks}{heights}{words}</svg>"
    ).format(
        id=plot.id,
        label=_safe(plot.story),
        height=_HEAD + _PLOT + _FOOT,
        since=int(plot.since.timestamp()),
        step=int(plot.step.total_seconds()),
        totals=totals,
        hatches=_hatches(plot.id),
        outages=_joined(_outage(plot, mark) for mark in plot.marks if mark.kind == "outage"),
        lines=_joined(_line(share) for share in (0.0, 0.5, 1.0)),
        heights=_heights(plot, top),
        drawn=_joined(drawn),
        unknown=_unknown(plot),
        marks=_marks(plot),
        words=_joined(_words_below(plot.since, plot.until, _HEAD + _PLOT)),
    )


def _line(share: float) -> Markup:
    return Markup('<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"></line>').format(
        y=_short(_HEAD + _PLOT * (1 - share))
    )


def _heights(plot: Plot, top: int) -> Markup:
    """Return the words of the lines across, or that there is nothing to see."""
    if not any(plot.totals):
        text = "nothing in this span" if plot.totals.count(None) < plot.steps else ""
        return Markup(
            '<text class="axis" x="50%" y="{y}" text-anchor="middle">{text}</text>'
        ).format(y=_HEAD + _PLOT // 2 - 6, text=text)
    words = ((share, top * share) for share in (0.5, 1.0))
    return _joined(
        Markup('<text class="axis" x="2" y="{y}">{word}</text>').format(
            y=_short(_HEAD + _PLOT * (1 - share) + 12), word=f"{int(number):,}"
        )
        for share, number in words
        if number.is_integer()
    )


def _words_below(since: datetime, until: datetime, y: int) -> list[Markup]:
    """Return a word for each round time, at most six, so that they fit a small screen."""
    span = until - since
    step = next((one for one in _ROUND_STEPS if span / one <= 5), span)
    first = _EPOCH + -(-(since - _EPOCH) // step) * step
    words = []
    at = first
    while at < until:
        x = _percent(at, since, until)
        if x <= 94:
            words.append(
                Markup(
                    '<line class="tick" x1="{x}%" x2="{x}%" y1="{y}" y2="{end}"></line>'
                    '<text class="axis" x="{x}%" dx="3" y="{base}">{word}</text>'
                ).format(x=_short(x), y=y, end=y + 5, base=y + 15, word=_clock(at, step))
            )
        at += step
    return words


def _marks(plot: Plot) -> Markup:
    drawn = []
    free_from = 0.0
    for mark in sorted(plot.marks, key=lambda one: one.at):
        x = _percent(mark.at, plot.since, plot.until)
        if mark.until is None and not 0 <= x <= 100:
            continue
        x = min(max(x, 0.0), 100.0)
        word, free_from = _word(mark, x, free_from)
        drawn.append(
            Markup(
                '<g class="mark {kind}"><title>{text}</title>'
                '<line x1="{x}%" x2="{x}%" y1="{head}" y2="{foot}"></line>'
                '<svg x="{x}%" y="{glyph}" width="10" height="10" overflow="visible">'
                '<path d="{shape}"></path></svg>{word}</g>'
            ).format(
                kind=mark.kind,
                text=_safe(mark.text),
                x=_short(x),
                head=_HEAD,
                foot=_HEAD + _PLOT,
                glyph=_HEAD - 10,
                shape=_SHAPES[mark.kind],
                word=word,
            )
        )
    return _joined(drawn)


_SHAPES: Final = {
    "version": "M-5 8L0 0L5 8z",
    "replay": "M-2 0h4v8h-4z",
    "outage": "M-4 0h3v8h-3zM1 0h3v8h-3z",
}


def _word(mark: ChartMark, x: float, free_from: float) -> tuple[Markup, float]:
    """Return the word of a mark where there is room for it, and where the next may begin."""
    text = clean(cut(mark.word, _LONGEST))
    width = (len(text) * 7 + 16) * 100 / _NARROW
    goes_left = x + width > 100
    if not text or (x - width if goes_left else x) < free_from:
        return Markup(""), free_from
    word = Markup('<text class="axis" x="{x}%" dx="{dx}" y="{y}"{end}>{text}</text>').format(
        x=_short(x),
        dx=-8 if goes_left else 8,
        y=_HEAD - 3,
        end=Markup(' text-anchor="end"') if goes_left else "",
        text=text,
    )
    return word, x + 4 if goes_left else x + width


def _outage(plot: Plot, mark: ChartMark) -> Markup:
    start = max(_percent(mark.at, plot.since, plot.until), 0.0)
    end = min(_percent(mark.until or plot.until, plot.since, plot.until), 100.0)
    if end <= start:
        return Markup("")
    return _box("outage-span", start, end, f"{plot.id}-held")


def _unknown(plot: Plot) -> Markup:
    """Return boxes over steps without known numbers, and a word for those at the beginning."""
    drawn = []
    begin: int | None = None
    totals = (*plot.totals, 0)
    for place, number in enumerate(totals):
        if number is None:
            begin = place if begin is None else begin
        elif begin is not None:
            share = 100 / plot.steps
            drawn.append(_box("unknown", begin * share, place * share, f"{plot.id}-held"))
            begin = None
    if plot.no_data_before is not None and plot.no_data_before > plot.since:
        end = min(_percent(plot.no_data_before, plot.since, plot.until), 100.0)
        drawn.append(_box("unknown", 0.0, end, f"{plot.id}-held"))
        drawn.append(
            Markup('<text class="axis" x="4" y="{y}">no data before {at}</text>').format(
                y=_HEAD + 30, at=_moment(plot.no_data_before, plot)
            )
        )
    return _joined(drawn)


def _box(kind: str, start: float, end: float, hatch: str) -> Markup:
    return Markup(
        '<rect class="{kind}" x="{x}%" width="{width}%" y="{y}" height="{height}"></rect>'
        '<rect fill="url(#{hatch})" x="{x}%" width="{width}%" y="{y}" height="{height}"></rect>'
    ).format(
        kind=kind, x=_short(start), width=_short(end - start), y=_HEAD, height=_PLOT, hatch=hatch
    )


# Hatches tell series apart without colours. They are drawn in pixels over the bars of a
# series, so they keep their shape however wide the chart is.

_HATCHES: Final = {
    2: "M-2 8L8 -2M4 12L12 4",
    3: "M2 2h2v2h-2zM7 7h2v2h-2z",
    4: "M-2 2L8 12M4 -2L12 6",
    5: "M0 3h10M0 8h10",
}


def _hatches(id: str) -> Markup:
    patterns = [
        Markup(
            '<pattern id="{id}-h{look}" class="hatch" width="10" height="10"'
            ' patternUnits="userSpaceOnUse"><path d="{shape}"></path></pattern>'
        ).format(id=id, look=look, shape=shape)
        for look, shape in _HATCHES.items()
    ]
    held = Markup(
        '<pattern id="{id}-held" class="hatch held" width="6" height="6"'
        ' patternUnits="userSpaceOnUse"><path d="M-1 7L7 -1"></path></pattern>'
    ).format(id=id)
    return Markup("<defs>{patterns}</defs>").format(patterns=_joined([*patterns, held]))


def _hatch_of(id: str, look: int, width: str, height: str) -> Markup:
    if look not in _HATCHES:
        return Markup("")
    return Markup('<rect fill="url(#{id}-h{look})" width="{w}" height="{h}"></rect>').format(
        id=id, look=look, w=width, h=height
    )


def _series(plot: Plot, one: Series, path: str, top: int) -> Markup:
    name = f"{plot.id}-s{one.look}"
    shape = Markup('<path id="{name}" class="s{look}" d="{path}"></path>').format(
        name=name, look=one.look, path=path
    )
    drawn = _stretched(plot, top, shape)
    if one.look not in _HATCHES or not path:
        return drawn
    # The bars clip a hatch of the size of the plot.
    return drawn + Markup(
        '<clipPath id="{name}-c" clipPathUnits="objectBoundingBox"><use href="#{name}"'
        ' transform="scale({x} {y})"></use></clipPath><rect fill="url(#{id}-h{look})"'
        ' clip-path="url(#{name}-c)" width="100%" y="{head}" height="{height}"></rect>'
    ).format(
        name=name,
        id=plot.id,
        look=one.look,
        x=f"{1 / (max(plot.steps, 1) * _CELL):.9f}",
        y=f"{1 / top:.9f}",
        head=_HEAD,
        height=_PLOT,
    )


def _stretched(plot: Plot, top: int, inside: Markup) -> Markup:
    return Markup(
        '<svg x="0" y="{y}" width="100%" height="{height}" viewBox="0 0 {width} {top}"'
        ' preserveAspectRatio="none">{inside}</svg>'
    ).format(y=_HEAD, height=_PLOT, width=max(plot.steps, 1) * _CELL, top=top, inside=inside)


# Paths. The plot is as high as its highest number, so heights are the numbers themselves.


def _bars_path(numbers: Sequence[int | None], below: Sequence[int], top: int, steps: int) -> str:
    if steps > _CROWDED:
        return "".join(_outlines(numbers, below, top))
    width = _CELL - 2
    return "".join(
        f"M{place * _CELL + 1} {top - below[place]}h{width}v{-number}h{-width}z"
        for place, number in enumerate(numbers)
        if number
    )


def _outlines(numbers: Sequence[int | None], below: Sequence[int], top: int) -> Iterator[str]:
    """Return bars that touch each other as one shape for each run: half as many bytes."""
    for is_bar, run in groupby(range(len(numbers)), key=lambda place: bool(numbers[place])):
        if is_bar:
            places = list(run)
            feet = [top - below[place] for place in places]
            heads = [foot - (numbers[place] or 0) for place, foot in zip(places, feet, strict=True)]
            there = _steps(heads, _CELL)
            back = _steps(feet[::-1], -_CELL)
            yield f"M{places[0] * _CELL} {heads[0]}{there}v{feet[-1] - heads[-1]}{back}z"


def _steps(levels: Sequence[int], width: int) -> str:
    """Return a line along these levels, each of this width."""
    found, at, length = [], levels[0], 0
    for level in levels:
        if level != at:
            found.append(f"h{length}v{level - at}")
            at, length = level, 0
        length += width
    return "".join([*found, f"h{length}"])


# Small things.

_EPOCH: Final = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday: weeks begin there


def _safe(text: str) -> Markup:
    return escape(clean(text))


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _filled(one: Series, plot: Plot) -> tuple[int | None, ...]:
    return (*one.numbers, *[None] * (plot.steps - len(one.numbers)))


def _top(numbers: Iterable[int | None]) -> int:
    """Return a round number for the top of the plot, with a whole one at its half."""
    most = max((number or 0 for number in numbers), default=0)
    if most <= 2:
        return 2
    if most <= 4:
        return 4
    power = 10 ** floor(log10(most))
    return next(int(power * step) for step in (1, 2, 4, 6, 8, 10) if power * step >= most)


def _percent(at: datetime, since: datetime, until: datetime) -> float:
    span = (until - since).total_seconds()
    return 100 * (at - since).total_seconds() / span if span else 0.0


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _clock(at: datetime, step: timedelta) -> str:
    at = at.astimezone(UTC)
    if step >= _DAY:
        return f"{at.day} {at:%b}"
    if step < _MINUTE:
        return f"{at:%H:%M:%S}"
    return f"{at.day} {at:%b}" if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"


def _moment(at: datetime, plot: Plot) -> str:
    """Return a time of a plot, with its day if there are several."""
    word = _clock(at, plot.step)
    is_short = plot.until - plot.since <= _DAY or plot.step >= _DAY
    return word if is_short or " " in word else f"{_clock(at, _DAY)}, {word}"


def _long(step: timedelta) -> str:
    seconds = int(step.total_seconds())
    if seconds % 86_400 == 0:
        return many(seconds // 86_400, "day")
    if seconds % 3_600 == 0:
        return many(seconds // 3_600, "hour")
    return many(seconds // 60, "minute") if seconds % 60 == 0 else many(seconds, "second")
