"""dlq groups: what broke, by cause, and what people have said about it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

from cyclopts import App, Parameter
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry, GroupStatus
from deadletter.core.query.values import duration
from deadletter.core.safe import clean
from deadletter.office.groups import GroupLine

from .desk import AtDesk, Desk
from .group_merging import merge, regroup, rules, split, undo
from .options import AtMost, Flag, Reason
from .paging import pages, tell_of_more
from .tables import (
    WIDE,
    Name,
    cell,
    firm_column,
    indented,
    name_column,
    number,
    number_column,
    percent,
    table,
    text_column,
)
from .times import ago, local, many
from .variants import show_variants

_NARROW: Final = 100
_TIGHT: Final = 61  # columns; with fewer, there is no room for shares and times
_TIGHTEST: Final = 53  # columns; with fewer, nor for the status
_STATUS: Final = 11  # columns that the status takes
_SHORT: Final = 10
_SHOWN: Final = 25  # groups, unless somebody says how many
_MOST_SAID: Final = 100
_LONGEST_SNOOZE: Final = timedelta(days=366)
_STYLES: Final = {
    GroupStatus.NEW: "yellow",
    GroupStatus.RESOLVED: "green",
    GroupStatus.REGRESSED: "red",
    GroupStatus.SNOOZED: "dim",
    GroupStatus.MUTED: "dim",
}


app = App(name="groups", help_format="markdown")


@app.default
async def groups(
    *,
    source: str | None = None,
    status: GroupStatus | None = None,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    limit: AtMost = None,
    after: str | None = None,
    desk: AtDesk,
) -> None:
    """
    What broke, by cause: letters with the same error in the same place are one group.

    Where there is more, standard error says how to go on.

    Args:
        source: Only of this mailbox.
        status: Only those that stand like this.
        all_: Also groups in which nothing is open any more, snoozed and muted ones.
        limit: How many to show. Otherwise 25; with --json, all of them.
        after: Where an earlier list ended, to go on from there.
    """
    lines: list[GroupLine] = []
    most = limit or (None if desk.as_json else _SHOWN)
    async with desk.office() as office:

        async def read(
            size: int, after: str | None
        ) -> tuple[Sequence[GroupLine], str | None]:
            page = await office.groups(
                source=source, status=status, everything=all_, limit=size, after=after
            )
            return page.groups, page.after

        async for some, ended in pages(read, most, after):
            after = ended
            lines += [] if desk.as_json else some
            for line in some if desk.as_json else ():
                desk.document(line)
    if lines:
        desk.show(group_table(lines, desk.clock.now(), desk.out.width))
        name = lines[0].fingerprint
        desk.hint(f"{desk.dlq} groups show {name} says what its letters share.")
        desk.hint(f"{desk.dlq} list group:{name} shows the letters of a group.")
    elif not desk.as_json:
        desk.tell(_nothing(status, everything=all_))
    words = ["groups", *(["--source", source] if source else [])]
    words += ["--status", status] if status else []
    words += ["--all"] if all_ else []
    tell_of_more(desk, words, limit, after)


@app.command
async def show(group: str, /, *, desk: AtDesk) -> None:
    """
    How a group stands, what its letters share, and what was said about it by whom.

    The newest letters are looked at. What nearly all of them have in common, and
    letters of other groups of the mailbox do not, comes first. Secrets are masked.

    Args:
        group: Its name, or the beginning of it.
    """
    async with desk.office() as office:
        line = await office.group(group)
        said = await office.audit(line.fingerprint, limit=_MOST_SAID)
        variants = await office.variants(line.fingerprint)
    if desk.as_json:
        desk.document({"group": line, "said": said, "variants": variants})
        return
    _page(desk, line)
    show_variants(desk, variants)
    for entry in said:
        desk.show(indented(_said(entry)))


@app.command
async def ack(
    *groups: str, owner: str | None = None, reason: Reason = "", desk: AtDesk
) -> None:
    """
    Say that you know: the groups are ongoing. Takes back what was said before.

    Args:
        groups: Their names, or the beginnings of them.
        owner: Who looks after them; '' is nobody.
        reason: What you know; kept as the note of the groups and in the audit.
    """
    await _say(desk, groups, GroupStatus.ONGOING, reason, owner=owner)


@app.command
async def resolve(
    *groups: str,
    version: Annotated[str, Parameter(name="--in", show_default=False)] = "",
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Say that this will not happen again. If it does, the groups are regressed.

    Their letters stay as they are: replay or close them.

    Args:
        groups: Their names, or the beginnings of them.
        version: The first version without the problem. Letters that die in older
            ones do not count.
        reason: Why; kept as the note of the groups and in the audit.
    """
    await _say(desk, groups, GroupStatus.RESOLVED, reason, version=version)


@app.command
async def snooze(
    *groups: str,
    span: Annotated[str, Parameter(name="--for")],
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Do not list groups for a while. Afterwards they are ongoing.

    Args:
        groups: Their names, or the beginnings of them.
        span: How long: 90m, 24h, 7d, 2w.
        reason: Why; kept as the note of the groups and in the audit.
    """
    length = duration(span.strip().lower())
    if length is None or not timedelta() < length <= _LONGEST_SNOOZE:
        raise ConfigError(
            "--for is a length of time up to a year, such as 90m, 24h, 7d or 2w"
        )
    until = desk.clock.now() + length
    await _say(desk, groups, GroupStatus.SNOOZED, reason, until=until)


@app.command
async def mute(*groups: str, reason: Reason = "", desk: AtDesk) -> None:
    """
    Do not list groups any more, until somebody says otherwise.

    Args:
        groups: Their names, or the beginnings of them.
        reason: Why; kept as the note of the groups and in the audit.
    """
    await _say(desk, groups, GroupStatus.MUTED, reason)


for command in (merge, split, undo, rules, regroup):
    app.command(command)


def group_table(lines: Sequence[GroupLine], now: datetime, width: int) -> Table:
    """Groups, one line each."""
    # As long as nobody has said anything, there is nothing to show of it.
    has_status = any(line.status is not GroupStatus.NEW for line in lines)
    # Names of groups are there to be typed, so others give way to them.
    with_status = has_status and width >= _TIGHTEST
    is_tight = width < _TIGHT + _STATUS * with_status
    shown = table()
    number_column(shown, "open")
    if not is_tight:
        number_column(shown, "share")
    name_column(shown, "source", most=18 if width >= _NARROW else 12)
    if with_status:
        firm_column(shown, "status", most=24 if width >= _NARROW else 9)
    text_column(shown, "what broke")
    if width >= WIDE:
        number_column(shown, "ever")
        firm_column(shown, "first seen")
    if not is_tight:
        firm_column(shown, "last seen")
    firm_column(shown, "group")
    for line in lines:
        cells: list[RenderableType] = [
            number(line.open, "bold"),
            *([] if is_tight else [cell(percent(line.share), "dim")]),
            Name(line.source),
        ]
        if with_status:
            cells.append(cell(_standing(line), _STYLES.get(line.status, "")))
        cells.append(cell(_what(line)))
        if width >= WIDE:
            cells += [number(line.total), cell(ago(line.first_seen, now))]
        if not is_tight:
            cells.append(cell(ago(line.last_seen, now)))
        cells.append(cell(_group_name(line, width), "cyan"))
        shown.add_row(*cells)
    return shown


def _group_name(line: GroupLine, width: int) -> str:
    """What to type after `group:`, the whole of it where there is room."""
    if width >= _NARROW or len(line.fingerprint) <= _SHORT:
        return line.fingerprint
    return f"{line.fingerprint[:_SHORT]}*"


async def _say(
    desk: Desk,
    names: tuple[str, ...],
    status: GroupStatus,
    reason: str,
    *,
    owner: str | None = None,
    until: datetime | None = None,
    version: str = "",
) -> None:
    if not names:
        raise ConfigError("say which groups: `dlq groups` shows their names")
    async with desk.office() as office:
        for name in names:
            line = await office.say(
                name,
                status,
                desk.by(reason),
                owner=owner,
                until=until,
                version=version,
            )
            if desk.as_json:
                desk.document(line)
                continue
            desk.tell(f"{line.fingerprint} is {_standing(line)}: {_what(line)}")
            if line.open and status is GroupStatus.RESOLVED:
                query = f"group:{line.fingerprint}"
                letters = many(line.open, "letter")
                dry = f"{desk.dlq} replay {query} --dry-run"
                desk.hint(f"{letters} of it still open: {dry}")


def _page(desk: Desk, line: GroupLine) -> None:
    now = desk.clock.now()
    where = line.frame.partition("#")[0]  # the hash of its line is for grouping
    title = Text("Group ", style="bold")
    title.append(clean(line.fingerprint), style="bold cyan")
    title.append(f"  {line.status}", style=_STYLES.get(line.status, ""))
    desk.show(title)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in (
        ("what broke", _what(line)),
        ("where", " · ".join(part for part in (line.source, where) if part)),
        ("letters", f"{line.open:,} open, {line.total:,} ever"),
        ("seen", f"first {ago(line.first_seen, now)}, last {ago(line.last_seen, now)}"),
        ("stands", _standing(line) if line.since else ""),
        ("owner", line.owner or ""),
        ("note", line.note),
    ):
        if text:
            facts.add_row(name, Text(clean(text)))
    desk.show(indented(facts, below=1))


def _said(entry: AuditEntry) -> Text:
    text = Text(f"{local(entry.at)}  ", style="dim")
    text.append(clean(entry.actor), style="cyan")
    text.append(f" {clean(entry.detail)}", style="default")
    if entry.reason:
        text.append(f", because: {clean(entry.reason)}", style="default")
    return text


def _standing(line: GroupLine) -> str:
    parts: list[str] = [line.status]
    if line.status is GroupStatus.RESOLVED and line.version:
        parts.append(f"in {line.version}")
    if line.until is not None:
        parts.append(f"until {local(line.until)[:16]}")
    if line.owner:
        parts.append(f"({line.owner})")
    return " ".join(parts)


def _what(line: GroupLine) -> str:
    error = line.error_type.rpartition(".")[2]
    text = f"overflow of many texts, the latest: {line.text}" if line.overflow else ""
    return ": ".join(filter(None, (error, text or line.text))) or line.code


def _nothing(status: GroupStatus | None, *, everything: bool) -> str:
    if status is not None:
        return f"No group is {status}."
    return (
        "Nothing has died here yet."
        if everything
        else "No groups with open letters, snoozed and muted ones aside (--all)."
    )
