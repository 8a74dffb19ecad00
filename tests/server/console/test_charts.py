"""Charts: what is drawn for which numbers, and that nothing of a message gets into markup."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Final

from deadletter.server.console import charts
from deadletter.server.console.charts import ChartMark, Plot, Series, bars, legend, spark

NOON: Final = datetime(2026, 11, 19, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
HOSTILE: Final = "<script>alert(1)</script>\"' onload=x \u202e\x00 ]]>"


class Seen(HTMLParser):
    """Elements, their attributes and their text; fails where tags are not balanced."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(markup)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def attributes(self, name: str) -> list[dict[str, str]]:
        return [found for tag, found in self.elements if tag == name]


def plot(*numbers: tuple[int | None, ...], **more: object) -> Plot:
    names = ("KeyError", "TimeoutError", "others")
    series = tuple(
        Series(name=names[at], numbers=one, look=at + 1) for at, one in enumerate(numbers)
    )
    given = {"id": "deaths", "title": "Deaths", "since": NOON, "step": HOUR, "series": series}
    return Plot(**(given | more))  # type: ignore[arg-type]


def test_bars_stand_on_each_other_and_are_as_high_as_their_numbers() -> None:
    seen = Seen(bars(plot((1, 0, 3), (2, 1, 0))))

    first, second = (
        one["d"]
        for one in seen.attributes("path")
        if one.get("class", "").startswith("s") and "d" in one
    )
    # The highest step has 3; the plot is 4 high.
    assert first == "M1 4h8v-1h-8zM21 4h8v-3h-8z"
    assert second == "M1 3h8v-2h-8zM11 4h8v-1h-8z"
    assert "2" in seen.text


def test_bars_of_many_steps_are_drawn_as_shapes_with_the_same_heights() -> None:
    dice = Random(5)
    low = tuple(dice.choice((0, 0, 1, 2, 2, 7)) for _ in range(150))
    high = tuple(dice.choice((None, 0, 1, 3, 3)) for _ in range(150))
    seen = Seen(bars(plot(low, high, step=timedelta(minutes=5))))

    found = [one["d"] for one in seen.attributes("path") if one.get("class", "")[:1] == "s"]
    boxes = [one["viewbox"] for one in seen.attributes("svg") if "viewbox" in one]
    top = int(boxes[0].split()[3])
    feet = [0] * 150
    for path, numbers in zip(found, (low, high), strict=True):
        drawn = heights(path, 150)
        expected = [
            (top - foot - (number or 0), top - foot) if number else None
            for foot, number in zip(feet, numbers, strict=True)
        ]
        assert drawn == expected
        feet = [foot + (number or 0) for foot, number in zip(feet, numbers, strict=True)]


def heights(path: str, steps: int) -> list[tuple[int, int] | None]:
    """Return the head and the foot of each bar of a path."""
    found: list[tuple[int, int] | None] = [None] * steps
    for shape in path.split("M")[1:]:
        start, rest = re.fullmatch(r"(\d+ \d+)(.*)z", shape).groups()  # type: ignore[union-attr]
        x, y = map(int, start.split())
        for way, text in re.findall(r"([hv])(-?\d+)", rest):
            if way == "v":
                y += int(text)
                continue
            for place in range(min(x, x + int(text)) // 10, max(x, x + int(text)) // 10):
                head, _ = found[place] or (y, y)
                found[place] = (head, y)  # heads come first, then feet
            x += int(text)
    return found


def test_a_chart_says_what_it_shows_and_has_the_same_numbers_as_rows() -> None:
    chart = plot((1, 0, 3), (2, 1, 0))

    (svg,) = [one for one in Seen(bars(chart)).attributes("svg") if "role" in one]
    assert svg["role"] == "img"
    assert svg["aria-label"] == ("Deaths: 7 deaths; most 3 in 1 hour at 12:00 UTC; latest 3.")
    assert [row.numbers for row in chart.table] == [(1, 2), (0, 1), (3, 0)]
    assert (chart.table[0].at, chart.table[-1].until) == (NOON, NOON + 3 * HOUR)


def test_many_steps_are_summed_in_the_table() -> None:
    chart = plot(tuple(range(288)), step=timedelta(minutes=5))

    assert len(chart.table) == 24
    assert sum(row.numbers[0] or 0 for row in chart.table) == chart.total == sum(range(288))


def test_nothing_in_a_span_is_said() -> None:
    chart = plot((0, 0, 0))

    assert "nothing in this span" in Seen(bars(chart)).text
    assert chart.story == "Deaths: no death in this span."
    assert Seen(bars(plot())).elements  # without any series


def test_unknown_numbers_are_gaps_and_not_zeros() -> None:
    chart = plot((None, 2, None, 1))

    seen = Seen(bars(chart))

    unknown = [one for one in seen.attributes("rect") if one.get("class") == "unknown"]
    assert [(one["x"], one["width"]) for one in unknown] == [("0%", "25%"), ("50%", "25%")]
    assert chart.totals == (None, 2, None, 1)
    assert chart.table[0].numbers == (None,)


def test_what_was_not_counted_yet_is_said() -> None:
    chart = plot((0, 0, 3, 4), no_data_before=NOON + 2 * HOUR)

    seen = Seen(bars(chart))

    assert "no data before 14:00" in seen.text
    (unknown,) = [one for one in seen.attributes("rect") if one.get("class") == "unknown"]
    assert unknown["width"] == "50%"


def test_marks_stand_where_they_happened() -> None:
    marks = (
        ChartMark(kind="version", at=NOON + HOUR, word="1.8.0", text="1.8.0 first seen"),
        ChartMark(kind="outage", at=NOON - HOUR, until=NOON + 2 * HOUR, text="orders stopped"),
        ChartMark(kind="replay", at=NOON + 9 * HOUR, text="after the end"),
    )

    seen = Seen(bars(plot((1, 2, 3, 4), marks=marks)))

    lines = [one["x1"] for one in seen.attributes("line") if one["x1"] == one["x2"] != "0"]
    assert "25%" in lines
    assert {"1.8.0", "1.8.0 first seen", "orders stopped"} <= set(seen.text)
    assert "after the end" not in seen.text
    (held,) = [one for one in seen.attributes("rect") if one.get("class") == "outage-span"]
    assert (held["x"], held["width"]) == ("0%", "50%")


def test_words_of_marks_do_not_meet() -> None:
    marks = tuple(
        ChartMark(kind="version", at=NOON + timedelta(minutes=at), word=f"1.8.{at}", text="seen")
        for at in range(60)
    )

    seen = Seen(bars(plot((1, 2, 3, 4), marks=marks)))

    assert len([text for text in seen.text if text.startswith("1.8.")]) == 2


def test_texts_of_others_are_escaped_and_spelled_out() -> None:
    chart = Plot(
        id="deaths",
        title=HOSTILE,
        since=NOON,
        step=HOUR,
        series=(Series(name=HOSTILE, numbers=(1, 2)),),
        marks=(ChartMark(kind="version", at=NOON, word=HOSTILE, text=HOSTILE),),
    )

    drawn = bars(chart) + legend(chart) + spark((1, 2), label=HOSTILE)

    seen = Seen(drawn)
    assert "script" not in {tag for tag, _ in seen.elements}
    assert not [name for _, found in seen.elements for name in found if name.startswith("on")]
    assert not {"\u202e", "\x00"} & set(drawn)
    assert any("<script>" in text for text in seen.text)


def test_sparks_tell_their_numbers_in_words() -> None:
    (svg,) = Seen(spark((3, 120, 31))).attributes("svg")

    assert svg["aria-label"] == "3 to 120 an hour, now 31"
    assert Seen(spark(())).attributes("svg")[0]["aria-label"] == "none an hour"


def test_every_look_has_a_colour_and_charts_have_no_styles_of_their_own() -> None:
    styles = (Path(charts.__file__).parent / "static/css/chart.css").read_text()

    drawn = bars(plot((1,), (2,), (3,)))

    assert all(f".s{look} {{" in styles for look in range(1, 7))
    assert "style=" not in drawn
