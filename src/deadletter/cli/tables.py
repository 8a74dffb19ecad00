"""Tables that fit the terminal, and cells nobody can break out of."""

from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.core.letter import LetterHead, State
from deadletter.core.safe import clean

SHORT_ID: Final = 10  # of 24 characters: one in a thousand million is not unique
WIDE: Final = 130  # columns from which there is room for whole ids

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
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=False
    )


def indented(what: RenderableType, *, above: int = 0, below: int = 0) -> Padding:
    """Something a little to the right, with so many empty lines around it."""
    return Padding(what, (above, 0, below, 2), expand=False)


def text_column(table: Table, name: str) -> None:
    """A column of text that gives way when there is no room."""
    table.add_column(name)  # its cells do not wrap, they end in an ellipsis


def firm_column(table: Table, name: str, *, most: int | None = None) -> None:
    """A column that does not give way; at `most` so wide."""
    table.add_column(name, no_wrap=True, max_width=most, overflow="ellipsis")


def number_column(table: Table, name: str) -> None:
    """A column of numbers."""
    table.add_column(name, justify="right", no_wrap=True)


def cell(text: str, style: str = "") -> Text:
    """Text of others in a cell of ours."""
    return Text(clean(text), style=style, no_wrap=True, overflow="ellipsis")


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
    if not head.error_text:
        return head.error_name
    return f"{head.error_name}: {head.error_text}"
