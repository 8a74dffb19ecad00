"""Tables that fit the terminal, and cells nobody can break out of."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.core.letter import LetterHead, State
from deadletter.core.safe import clean

SHORT_ID: Final = 10  # of 24 characters: one in a thousand million is not unique
WIDE: Final = 130  # columns from which there is room for whole ids
NARROW: Final = 80  # columns below which tables leave out what can be done without
_GAP: Final = 2  # columns between two columns
_SHORTEST_NAME: Final = 10  # columns; with fewer, names cannot be told apart
_ENOUGH_NAME: Final = 20  # columns that a name may take from numbers beside it

_STYLES: Final = {
    State.PENDING: "yellow",
    State.REVIEWED: "cyan",
    State.REPLAYING: "blue",
    State.REPLAYED: "green",
    State.CLOSED: "dim",
    State.QUARANTINED: "magenta",
    State.DISCARDED: "dim",
}


def table() -> Table:
    """A table without lines, for reading."""
    return Table(
        box=None,
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
        header_style="dim",
        expand=False,
    )


def indented(what: RenderableType, *, above: int = 0, below: int = 0) -> Padding:
    """Something a little to the right, with so many empty lines around it."""
    return Padding(what, (above, 0, below, 2), expand=False)


def percent(share: float) -> str:
    """A share in percent: nearly all is not all, and hardly any is not none."""
    text = f"{share:.0%}"
    if text == "100%" and share < 1:
        return ">99%"
    return "<1%" if text == "0%" and share else text


def text_column(table: Table, name: str) -> None:
    """A column of text that gives way when there is no room."""
    # Neither its name nor its cells wrap, they end in an ellipsis.
    table.add_column(Text(name, no_wrap=True, overflow="ellipsis"))


def name_column(table: Table, name: str, *, most: int | None = None) -> None:
    """A column of names, which give way in their middle; at `most` so wide."""
    least = max(len(name), _SHORTEST_NAME)
    table.add_column(name, min_width=least, max_width=most)


def firm_column(table: Table, name: str, *, most: int | None = None) -> None:
    """A column that does not give way; at `most` so wide."""
    table.add_column(name, no_wrap=True, max_width=most, overflow="ellipsis")


def number_column(table: Table, name: str) -> None:
    """A column of numbers."""
    table.add_column(name, justify="right", no_wrap=True)


def cell(text: str, style: str = "") -> Text:
    """Text of others in a cell of ours."""
    return Text(clean(text), style=style, no_wrap=True, overflow="ellipsis")


class Name:
    """
    A name of others in a cell of ours.

    Names differ at their ends (`orders`, `orders-dlq`), so one for which there is no
    room is cut in the middle.
    """

    def __init__(self, text: str, style: str = "") -> None:
        self._text = clean(text)
        self._style = style
        self.width = cell_len(self._text)

    def __rich_measure__(
        self, console: Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement(min(self.width, _SHORTEST_NAME), self.width)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Text(cut(self._text, options.max_width), self._style, no_wrap=True)


def cut(text: str, width: int) -> str:
    """A text in so many columns, without its middle if they are too few."""
    if cell_len(text) <= width:
        return text
    before = width // 2
    after = width - 1 - before
    start = chop_cells(text, before)[0] if before > 0 else ""
    # Backwards, so that what is chopped off is counted from the end.
    end = chop_cells(text[::-1], after)[0][::-1] if after > 0 else ""
    return f"{start}…{end}"


class Counts(NamedTuple):
    """A column of numbers, one for each name."""

    title: Text
    numbers: Sequence[Text]


def count_tables(
    title: str, names: Sequence[Name], columns: Sequence[Counts], width: int
) -> Iterator[Table]:
    """Names and their numbers; what has no room beside them is in a table below."""
    longest = max([len(title), *(name.width for name in names)])
    for part in _fitting(columns, width - min(longest, _ENOUGH_NAME)):
        shown = table()
        name_column(shown, title)
        for column in part:
            shown.add_column(column.title, justify="right", no_wrap=True)
        for name, *numbers in zip(names, *(one.numbers for one in part), strict=True):
            shown.add_row(name, *numbers)
        yield shown


def _fitting(columns: Sequence[Counts], room: int) -> list[Sequence[Counts]]:
    """The columns in as few parts, of about the same size, as are not too broad."""
    for count in range(1, len(columns)):
        size = -(-len(columns) // count)
        parts = [columns[at : at + size] for at in range(0, len(columns), size)]
        if all(_breadth(part) <= room for part in parts):
            return parts
    return [[column] for column in columns]


def _breadth(columns: Sequence[Counts]) -> int:
    return sum(
        _GAP + max(text.cell_len for text in (column.title, *column.numbers))
        for column in columns
    )


def number(count: int, style: str = "") -> Text:
    """A number; a zero steps back."""
    return Text(f"{count:,}", style=style if count else "dim")


def state(of: State) -> Text:
    """A state in its colour."""
    return Text(of, style=_STYLES.get(of, ""))


def short(letter_id: str, width: int = 0) -> str:
    """As much of an id as one needs to type, or all of it where there is room."""
    return letter_id if width >= WIDE else letter_id[:SHORT_ID]


def error_of(head: LetterHead) -> str:
    """What went wrong, in one line."""
    if not head.error_type and not head.error_text:
        return head.reason_text or head.reason
    return ": ".join(filter(None, (head.error_name, head.error_text)))
