"""dlq stats: what is where, in numbers."""

from collections.abc import Iterable
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from deadletter.core.letter import State
from deadletter.office.stats import Arrivals, Stats

from .desk import AtDesk
from .overview import said_of_waits
from .tables import Counts, Name, count_tables, indented, number, state
from .times import many, span

_COUNTED: Final = {
    "ready": "",
    "delayed": "",
    "claimed": "",
    "suspects": "red",
    "sent": "",
    "handled": "green",
    "buried": "yellow",
    "failed": "red",
}


async def stats(*, desk: AtDesk) -> None:
    """Count what is where: messages by mailbox, letters by state."""
    async with desk.office() as office:
        found = await office.stats()
    if desk.as_json:
        desk.document(found)
        return
    width = desk.out.width - 2  # what is indented has less
    desk.show(Text("Mailboxes", style="bold"))
    for shown in _mailboxes(found, width):
        desk.show(indented(shown, below=1))
    desk.show(Text("Letters", style="bold"))
    for above, shown in enumerate(_letters(found, width)):
        desk.show(indented(shown, above=min(above, 1)))
    if found.unsettled:
        text = f"{said_of_waits(found.unsettled, desk.clock.now())}."
        desk.show(indented(Text(text, style="yellow"), above=1))
    arrived = " · ".join(_arrived(one) for one in found.arrivals)
    if arrived:
        desk.show(indented(Text(arrived, style="dim"), above=1))


def _mailboxes(found: Stats, width: int) -> Iterable[RenderableType]:
    lines = found.mailboxes
    if not lines:
        return [Text("none yet", style="dim")]
    columns = [
        Counts(Text(name), [number(getattr(line, name), style) for line in lines])
        for name, style in _COUNTED.items()
    ]
    names = [Name(line.mailbox, "cyan") for line in lines]
    return count_tables("mailbox", names, columns, width)


def _letters(found: Stats, width: int) -> Iterable[RenderableType]:
    if not found.sources:
        return [Text("none", style="dim")]
    sources = sorted(found.sources.items())
    names = [Name(source) for source, _ in sources]
    is_summed = len(sources) > 1
    columns = []
    for one in (one for one in State if found.letters.get(one)):
        numbers = [number(counts.get(one, 0)) for _, counts in sources]
        if is_summed:
            numbers.append(number(found.letters[one], "bold"))
        columns.append(Counts(state(one), numbers))
    if is_summed:
        names.append(Name("all", "bold"))
    return count_tables("source", names, columns, width)


def _arrived(arrivals: Arrivals) -> str:
    least = "at least " if arrivals.at_least else ""
    window = span(arrivals.seconds).replace("1 h", "hour").replace("1 d", "day")
    return f"{least}{many(arrivals.count, 'death')} in the last {window}"
