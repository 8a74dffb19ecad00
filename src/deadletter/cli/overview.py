"""dlq without anything: what is open now, and what to type next."""

from rich.table import Table
from rich.text import Text

from deadletter.core.letter import State, still_open
from deadletter.core.safe import clean

from .desk import AtDesk, Desk
from .groups import group_name, group_table
from .tables import indented
from .times import many

_TOP = 5


async def overview(*, desk: AtDesk) -> None:
    """What is open now, and what to type next."""
    file = desk.file() if desk.server is None else None
    if file is not None and not file.exists() and not desk.as_json:
        _welcome(desk)
        return
    async with desk.office() as office:
        counts = await office.letters.counts()
        top = await office.groups(limit=_TOP)
        queues = await office.queues()
    totals = {
        state: sum(states.get(state, 0) for states in counts.values())
        for state in State
    }
    waiting = sum(queue.ready + queue.delayed for queue in queues)
    suspects = sum(queue.suspects for queue in queues)
    if desk.as_json:
        desk.document(
            {
                "open": still_open(totals),
                "letters": totals,
                "groups": top.groups,
                "waiting": waiting,
                "suspects": suspects,
            }
        )
        return
    opened = still_open(totals)
    if not opened:
        desk.tell("Nothing is open. All is well.", "green")
    else:
        desk.tell(f"{many(opened, 'open letter')}, by cause:", "bold")
        shown = group_table(top.groups, desk.clock.now(), desk.out.width - 2)
        desk.show(indented(shown))
        if top.after is not None:
            desk.tell(f"  … and more: {desk.dlq} groups", "dim")
    desk.tell(_elsewhere(totals, waiting, suspects), "dim")
    first = group_name(top.groups[0], desk.out.width) if top.groups else ""
    _show_next(desk, first)


def _elsewhere(totals: dict[State, int], waiting: int, suspects: int) -> str:
    parts = [f"{many(waiting, 'message')} waiting"]
    if suspects:
        parts.append(f"{many(suspects, 'suspect')} of lost workers")
    parts += [
        f"{totals[state]:,} {state}"
        for state in State
        if state is not State.PENDING and totals[state]
    ]
    return " · ".join(parts)


def _welcome(desk: Desk) -> None:
    desk.tell(f"There is no office at {desk.file()} yet.")
    steps = Table.grid(padding=(0, 2, 0, 0))
    steps.add_row(Text("dlq send orders '{\"id\": 1}'", "cyan"), "send a message")
    steps.add_row(Text("dlq work shop:app", "cyan"), "run the handlers of an App")
    steps.add_row(Text("dlq --url sqlite:///other.db", "cyan"), "look elsewhere")
    steps.add_row(Text("dlq --help", "cyan"), "everything else")
    desk.show(indented(steps))


def _show_next(desk: Desk, group: str) -> None:
    dlq = desk.dlq
    if group:
        query = f"group:{clean(group)}"
        rows = [
            (f"{dlq} list {query}", "the letters of the first"),
            (f"{dlq} show ID", "one letter's whole story"),
            (f"{dlq} replay {query} --dry-run", "what sending them back would do"),
        ]
    else:
        rows = [
            (f"{dlq} stats", "what is where"),
            (f"{dlq} verify", "does it all add up?"),
        ]
    rows.append(("dlq --help", "everything else"))
    steps = Table.grid(padding=(0, 2, 0, 0))
    for command, what in rows:
        steps.add_row(Text(command, "cyan"), Text(what))
    if desk.dlq == "dlq":
        desk.show(indented(steps, above=1))
        return
    desk.show(Text())
    for command, _ in rows:  # too long for two columns, and to be copied whole
        desk.tell(f"  {command}", "cyan")
