"""A bar while something takes long, on a terminal only."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter, RawIOBase
from typing import Any, BinaryIO

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
from rich.text import Text

from .desk import Desk

Advance = Callable[[int], None]


class Bar:
    """A bar that moves when called with so many steps, and may say something."""

    def __init__(self, progress: Progress | None, what: str, total: int | None) -> None:
        self._progress = progress
        self._what = what
        self._task = None if progress is None else progress.add_task(what, total=total)

    def __call__(self, steps: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps, description=self._what)

    def say(self, what: str) -> None:
        """Show these words, until it moves again."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=what)


class _Speed(ProgressColumn):
    """Steps a second, once there is something to go by."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


@contextmanager
def bar(
    desk: Desk, what: str, total: int | None, *, in_bytes: bool = False
) -> Iterator[Bar]:
    """
    A bar of `total` steps; what it gives is called with how many were taken.

    Without a total it shows that something goes on, and how far it is.
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
    """The same ids, with a bar that moves as they are asked for."""
    with bar(desk, what, len(ids)) as advance:
        yield _counted(ids, advance) if desk.is_watched else ids


@contextmanager
def reading(desk: Desk, what: str, file: BinaryIO, *, times: int) -> Iterator[BinaryIO]:
    """The same file, with a bar that moves as it is read that many times."""
    if not desk.is_watched:
        yield file
        return
    with bar(desk, what, times * _size(file), in_bytes=True) as advance:
        yield BufferedReader(_Counting(file, advance))


@contextmanager
def writing(desk: Desk, what: str, file: BinaryIO) -> Iterator[BinaryIO]:
    """The same file, with a bar that moves as it is written."""
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
    """Tells how many bytes go through to a file, which stays open after it."""

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
