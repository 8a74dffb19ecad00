"""dlq groups merge, split, undo, rules, regroup: what belongs to which group."""

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from deadletter.core.errors import ConfigError
from deadletter.core.safe import clean
from deadletter.office.group_merging import Regrouped

from .desk import AtDesk, Desk
from .options import Reason
from .tables import indented
from .times import many


async def merge(into: str, /, *others: str, reason: Reason = "", desk: AtDesk) -> None:
    """
    Make several groups one: the same cause, told in different words.

    Letters to come follow. `dlq groups undo` takes it back.

    Args:
        into: The group that stays: its name, or the beginning of it.
        others: The groups that become part of it.
        reason: Why; kept in the audit.
    """
    if not others:
        raise ConfigError("name at least two groups: `dlq groups` shows their names")
    async with desk.office() as office:
        done = await office.merge_groups(into, others, desk.by(reason))
    _tell(desk, done, f"{many(done.moved, 'letter')} moved to {done.group}.")
    _hint(desk, others[0])


async def split(
    group: str,
    query: Annotated[str, Parameter(name="query")],
    /,
    *,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Make some letters of a group a group of their own: another cause, in the same words.

    Letters to come follow. `dlq groups undo` takes it back.

    Args:
        group: Its name, or the beginning of it.
        query: Which letters, by a search such as version:2.0 or text:timeout.
        reason: Why; kept in the audit.
    """
    async with desk.office() as office:
        done = await office.split_group(group, query, desk.by(reason))
    _tell(desk, done, f"{many(done.moved, 'letter')} moved to {done.group}.")
    _hint(desk, done.group)


async def undo(group: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Take back the last merge or split of a group. Its letters go back.

    Args:
        group: The group that was merged or split, or the one that was split off.
        reason: Why; kept in the audit.
    """
    async with desk.office() as office:
        done = await office.undo_grouping(group, desk.by(reason))
    _tell(desk, done, f"{many(done.moved, 'letter')} moved back to {done.group}.")


async def rules(*, desk: AtDesk) -> None:
    """List merges and splits that letters to come follow."""
    async with desk.office() as office:
        lines = await office.group_rules()
    if desk.as_json:
        for line in lines:
            desk.document(line)
        return
    if not lines:
        desk.tell("No groups were merged or split.")
    for line in lines:
        what = f"letters with {line.query}" if line.query else "all letters"
        said = f"{line.group}: {what} belong to {line.target} ({line.actor})"
        desk.show(indented(Text(clean(said))))


async def regroup(*, desk: AtDesk) -> None:
    """
    Move letters of older fingerprints to their groups now.

    `dlq serve` does so by itself. It can be interrupted, and goes on the next time.
    """
    async with desk.office() as office:
        moved = await office.regroup(desk.by(""))
    if desk.as_json:
        desk.document({"moved": moved})
        return
    desk.tell(f"{many(moved, 'letter')} moved. Every letter is in its group.")


def _tell(desk: Desk, done: Regrouped, said: str) -> None:
    if desk.as_json:
        desk.document(done)
    else:
        desk.tell(said)


def _hint(desk: Desk, name: str) -> None:
    if not desk.as_json:
        desk.hint(f"{desk.dlq} groups undo {clean(name)} takes it back.")
