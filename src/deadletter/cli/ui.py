"""Output of the command: times, amounts, tables, questions, pages and progress bars."""

import os
import shlex
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from datetime import datetime, timedelta
from io import BufferedReader, BufferedWriter, RawIOBase
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import LetterHead, State
from deadletter.core.text import clean, many, span
from deadletter.ports import Page

from .desk import Desk
from .streams import interruptible, wait_for_keys

__all__ = ["ago", "local", "many", "size", "span", "time_zone"]


def ago(when: datetime, now: datetime) -> str:
    """Return how long ago something was, or how soon it will be."""
    seconds = (now - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def local(when: datetime) -> str:
    """Return a time in the local time zone."""
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}"


def time_zone(now: datetime) -> str:
    """Return the name of the local time zone, such as UTC+02:00."""
    offset = now.astimezone().utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    sign = "-" if offset < timedelta() else "+"
    return f"UTC{sign}{hours:02}:{minutes:02}" if offset else "UTC"


def size(count: int) -> str:
    """Return a number of bytes for people."""
    if count < 10_000:
        return f"{count:,} bytes"
    if count < 10_000_000:
        return f"{count / 1_000:,.0f} kB"
    return f"{count / 1_000_000:,.0f} MB"


SHORT_ID: Final = 10  # of 24 characters: one in a thousand million is not unique
WIDE: Final = 130  # columns from which there is room for whole ids
NARROW: Final = 80  # columns below which tables leave out less important columns
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
    """Return an empty table without borders."""
    return Table(
        box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", expand=False
    )


def indented(what: RenderableType, *, above: int = 0, below: int = 0) -> Padding:
    """Indent something, with empty lines above and below it."""
    return Padding(what, (above, 0, below, 2), expand=False)


def percent(share: float) -> str:
    """Return a share in percent; only exactly all is 100%, and only none is 0%."""
    text = f"{share:.0%}"
    if text == "100%" and share < 1:
        return ">99%"
    return "<1%" if text == "0%" and share else text


def text_column(table: Table, name: str) -> None:
    """Add a column of text that is shortened when there is no room."""
    # Its name and cells do not wrap; they end in an ellipsis.
    table.add_column(Text(name, no_wrap=True, overflow="ellipsis"))


def name_column(table: Table, name: str, *, most: int | None = None) -> None:
    """Add a column of names, shortened in the middle, at most `most` wide."""
    least = max(len(name), _SHORTEST_NAME)
    table.add_column(name, min_width=least, max_width=most)


def firm_column(table: Table, name: str, *, most: int | None = None) -> None:
    """Add a column that is not shortened for others, at most `most` wide."""
    table.add_column(name, no_wrap=True, max_width=most, overflow="ellipsis")


def number_column(table: Table, name: str) -> None:
    """Add a column of numbers."""
    table.add_column(name, justify="right", no_wrap=True)


def cell(text: str, style: str = "") -> Text:
    """Return a cell with untrusted text, cleaned."""
    return Text(clean(text), style=style, no_wrap=True, overflow="ellipsis")


class Name:
    """
    A cell with an untrusted name, cleaned.

    Names often differ at their ends (`orders`, `orders-dlq`), so long names are
    shortened in the middle.
    """

    def __init__(self, text: str, style: str = "") -> None:
        self._text = clean(text)
        self._style = style
        self.width = cell_len(self._text)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(self.width, _SHORTEST_NAME), self.width)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Text(cut(self._text, options.max_width), self._style, no_wrap=True)


def cut(text: str, width: int) -> str:
    """Return a text that takes at most `width` columns, shortened in the middle."""
    if cell_len(text) <= width:
        return text
    before = width // 2
    after = width - 1 - before
    start = chop_cells(text, before)[0] if before > 0 else ""
    # Backwards, so that the columns are counted from the end.
    end = chop_cells(text[::-1], after)[0][::-1] if after > 0 else ""
    return f"{start}…{end}"


class Counts(NamedTuple):
    """A column of numbers, one for each name."""

    title: Text
    numbers: Sequence[Text]


def count_tables(
    title: str, names: Sequence[Name], columns: Sequence[Counts], width: int
) -> Iterator[Table]:
    """Yield tables of names and their numbers, one below the other if one is too wide."""
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
    """Split columns into as few parts of about the same size as fit into the room."""
    for count in range(1, len(columns)):
        size = -(-len(columns) // count)
        parts = [columns[at : at + size] for at in range(0, len(columns), size)]
        if all(_breadth(part) <= room for part in parts):
            return parts
    return [[column] for column in columns]


def _breadth(columns: Sequence[Counts]) -> int:
    return sum(
        _GAP + max(text.cell_len for text in (column.title, *column.numbers)) for column in columns
    )


def number(count: int, style: str = "") -> Text:
    """Return a number; zero is dimmed."""
    return Text(f"{count:,}", style=style if count else "dim")


def state(of: State) -> Text:
    """Return a state in its colour."""
    return Text(of, style=_STYLES.get(of, ""))


def short(letter_id: str, width: int = 0) -> str:
    """Return the part of an id that has to be typed, or all of it if there is room."""
    return letter_id if width >= WIDE else letter_id[:SHORT_ID]


def error_of(head: LetterHead) -> str:
    """Return the error of a letter in one line."""
    if not head.error_type and not head.error_text:
        return head.reason_text or head.reason
    return ": ".join(filter(None, (head.error_name, head.error_text)))


def ask_to_confirm(desk: Desk, what: str, *, yes: bool, count: int | None = None) -> None:
    """
    Ask the user to confirm `what`, such as "discard 3 letters"; raise Conflict if not.

    With a `count`, the user has to type that number, so that a slip does not confirm.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"this would {what}: add --yes to confirm it")
    if count is not None and count > 1:
        answer = _ask(desk, f"This will {what}. Type {count} to continue: ")
        is_confirmed = answer.replace(",", "").strip() == str(count)
    else:
        answer = _ask(desk, f"This will {what}. Continue? [y/N] ")
        is_confirmed = answer.strip().lower() in {"y", "yes"}
    if not is_confirmed:
        raise Conflict("not confirmed: nothing was changed")


def _ask(desk: Desk, question: str) -> str:
    words = Text(clean(question), style="bold")
    try:
        with interruptible():
            desk.err.print(words, end="", soft_wrap=True)
            wait_for_keys()
            return input()
    except EOFError:
        return ""
    except KeyboardInterrupt:
        desk.err.print()  # so that the next output starts on a line of its own
        raise


T = TypeVar("T")
Read = Callable[[int, str | None], Awaitable[tuple[Sequence[T], str | None]]]
"""Reads a page: takes its size and cursor; returns its entries and the next cursor."""

PAGE: Final = 500  # entries of one request


async def pages(
    read: Read[T], most: int | None, after: str | None
) -> AsyncIterator[tuple[Sequence[T], str | None]]:
    """Yield the pages of a list, up to `most` entries, each with the next cursor."""
    left = most
    while True:
        some, after = await read(PAGE if left is None else min(PAGE, left), after)
        yield some, after
        left = None if left is None else left - len(some)
        if after is None or left == 0:
            return


async def one_by_one(
    read: Callable[[str, int], Awaitable[Sequence[T]]],
    name: Callable[[T], str],
    *,
    size: int = PAGE,
) -> AsyncGenerator[T]:
    """Yield all entries of a list whose pages start at a name, as in the queue server."""
    last = ""
    while True:
        page = await read(last, size)
        for one in page:
            if name(one) != last:  # the last entry of the page before
                yield one
        if len(page) < size:
            return
        last = name(page[-1])


def show_progress_of_search(desk: Desk, page: Page) -> None:
    """Print how far a search got that stopped before its page was full."""
    if page.letters is None or page.back_to is None:
        return
    desk.warn(
        f"Looked at {page.looked_at:,} of {page.letters:,} letters, back to"
        f" {page.back_to:%Y-%m-%d %H:%M:%S} UTC."
    )


def show_next_page(desk: Desk, words: Sequence[str], limit: int | None, after: str | None) -> None:
    """Print the command that continues a list, if there is more of it."""
    if after is None:
        return
    form = ["--json"] if desk.as_json else []
    most = [] if limit is None else ["-n", str(limit)]
    again = shlex.join([*words, *form, *most, "--after", after])
    desk.warn(f"There is more: {desk.dlq} {again}")


Advance = Callable[[int], None]


class Bar:
    """A progress bar: call it with a number of steps to advance it."""

    def __init__(self, progress: Progress | None, what: str, total: int | None) -> None:
        self._progress = progress
        self._what = what
        self._task = None if progress is None else progress.add_task(what, total=total)

    def __call__(self, steps: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, description=self._what)

    def show_text(self, what: str) -> None:
        """Show a text until the bar advances again."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=what)


class _Speed(ProgressColumn):
    """The number of steps per second, once it is known."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


@contextmanager
def bar(desk: Desk, what: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Bar]:
    """
    Show a progress bar of `total` steps while the block runs.

    Without a total, the bar shows activity and the number of steps so far.
    """
    if not desk.is_watched:
        yield Bar(None, what, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TransferSpeedColumn() if in_bytes else _Speed(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=desk.err, transient=True) as progress:
        yield Bar(progress, what, total)


@contextmanager
def through(desk: Desk, what: str, ids: Sequence[str]) -> Iterator[Iterable[str]]:
    """Yield the same ids, with a progress bar that advances as they are consumed."""
    with bar(desk, what, len(ids)) as advance:
        yield _counted(ids, advance) if desk.is_watched else ids


@contextmanager
def reading(desk: Desk, what: str, file: BinaryIO, *, times: int) -> Iterator[BinaryIO]:
    """Yield the same file, with a progress bar for reading it `times` times."""
    if not desk.is_watched:
        yield file
        return
    with bar(desk, what, times * _size(file), in_bytes=True) as advance:
        yield BufferedReader(_Counting(file, advance))


@contextmanager
def writing(desk: Desk, what: str, file: BinaryIO) -> Iterator[BinaryIO]:
    """Yield the same file, with a progress bar that advances as it is written."""
    if not desk.is_watched:
        yield file
        return
    with bar(desk, what, None, in_bytes=True) as advance:
        counting = BufferedWriter(_Counting(file, advance))
        try:
            yield counting
        finally:
            counting.flush()


class _Counting(RawIOBase):
    """A wrapper that counts bytes read and written; the file stays open after it."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self._file = file
        self._advance = advance

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, at: int, whence: int = 0) -> int:
        return self._file.seek(at, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._advance(len(data))
        return len(data)

    def write(self, data: Any) -> int:
        written = self._file.write(data)
        self._advance(written)
        return written


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _counted(ids: Iterable[str], advance: Advance) -> Iterator[str]:
    for one in ids:
        yield one
        advance(1)
