"""A bar while something takes long, on a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from .desk import Desk


class _Speed(ProgressColumn):
    """Steps a second, once there is something to go by."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")


@contextmanager
def bar(desk: Desk, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar of `total` steps; what it gives is called with how many were taken."""
    if not desk.is_watched:
        yield _quietly
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Speed(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=desk.err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)


def _quietly(steps: int) -> None:
    """Nobody looks."""
