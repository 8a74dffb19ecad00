"""dlq groups: list, show, resolve, snooze, mute, merge and split groups of letters."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

from cyclopts import App, Parameter
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry, GroupStatus
from deadletter.core.query.fields import duration
from deadletter.core.text import clean
from deadletter.office.groups import GroupLine, GroupOrder, Regrouped
from deadletter.office.variants import ValueCount, Variants

from .desk import AtDesk, Desk
from .options import AtMost, Flag, Reason
from .ui import (
    WIDE,
    Name,
    ago,
    cell,
    firm_column,
    indented,
    local,
    many,
    name_column,
    number,
    number_column,
    pages,
    percent,
    show_next_page,
    table,
    text_column,
)

_TEXTS: Final = 5  # shown to a person; --json has more
_TRAITS: Final = 10
_VALUES: Final = 3


def show_variants(desk: Desk, found: Variants) -> None:
    """Show what letters share, and the different texts of their errors."""
    if not found.looked_at:
        desk.tell("All its letters have been purged.", "dim")
        return
    desk.tell(f"Common values, {_sample(found)}:")
    shown = table()
    firm_column(shown, "field")
    number_column(shown, "letters")
    number_column(shown, "others")
    text_column(shown, "value")
    for trait in [one for one in found.traits if one.tells][:_TRAITS]:
        for n, one in enumerate(trait.values[:_VALUES]):
            shown.add_row(
                cell("" if n else trait.field, "cyan"),
                cell(_share(one.count, found.looked_at)),
                cell(_share(one.elsewhere, found.compared), "dim"),
                cell(one.value),
            )
        if trait.distinct > _VALUES:
            more = f"… {trait.distinct - _VALUES:,} other values"
            shown.add_row("", "", "", cell(more, "dim"))
    desk.show(indented(shown))
    masked = [one.field for one in found.traits if one.is_masked]
    own = [one.field for one in found.traits if not (one.tells or one.is_masked)]
    for what, fields in (("almost always different", own), ("masked, so not compared", masked)):
        if fields:
            desk.tell(f"  {what}: {', '.join(fields)}", "dim")
    desk.tell("")
    texts_of = "text" if found.distinct_texts == 1 else "texts"
    desk.tell(f"{found.distinct_texts:,} error {texts_of}, without variable parts:")
    texts = table()
    number_column(texts, "letters")
    text_column(texts, "text")
    for text in found.texts[:_TEXTS]:
        texts.add_row(cell(_share(text.count, found.looked_at)), cell(_text(text)))
    desk.show(indented(texts, below=1))


def _sample(found: Variants) -> str:
    sample = f"of the newest {found.looked_at:,} of {found.letters:,} letters"
    if found.opened < found.looked_at:
        sample += f" (contents of {found.opened:,})"
    if found.compared:
        sample += f", compared with {found.compared:,} others of the mailbox"
    return sample


def _share(n: int, of: int) -> str:
    if not of:
        return "-"
    return percent(n / of)


def _text(text: ValueCount) -> str:
    return text.value or "(no text)"


async def merge(into: str, /, *others: str, reason: Reason = "", desk: AtDesk) -> None:
    """
    Merge groups that have the same cause.

    New letters follow. `dlq groups undo` undoes it.

    Args:
        into: The group that stays: its name, or the beginning of it.
        others: The groups that become part of it.
        reason: Why; recorded in the audit.
    """
    if not others:
        raise ConfigError("name at least two groups: `dlq groups` lists them")
    async with desk.office() as office:
        done = await office.groups.merge(into, others, desk.by(reason))
    _show_done(desk, done, f"{many(done.moved, 'letter')} moved to {done.group}.")
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
    Split letters with another cause off a group.

    New letters follow. `dlq groups undo` undoes it.

    Args:
        group: The name of the group, or the beginning of it.
        query: Which letters, by a search such as version:2.0 or text:timeout.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        done = await office.groups.split(group, query, desk.by(reason))
    _show_done(desk, done, f"{many(done.moved, 'letter')} moved to {done.group}.")
    _hint(desk, done.group)


async def undo(group: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    Undo the last merge or split of a group and move its letters back.

    Args:
        group: The group that was merged or split, or the one that was split off.
        reason: Why; recorded in the audit.
    """
    async with desk.office() as office:
        done = await office.groups.undo(group, desk.by(reason))
    _show_done(desk, done, f"{many(done.moved, 'letter')} moved back to {done.group}.")


async def rules(*, desk: AtDesk) -> None:
    """List merges and splits that apply to new letters."""
    async with desk.office() as office:
        lines = await office.groups.rules()
    if desk.as_json:
        for line in lines:
            desk.document(line)
        return
    if not lines:
        desk.tell("No groups were merged or split.")
    for line in lines:
        what = f"letters with {line.query}" if line.query else "all letters"
        text = f"{line.group}: {what} belong to {line.target} ({line.actor})"
        desk.show(indented(Text(clean(text))))


async def regroup(*, desk: AtDesk) -> None:
    """
    Move letters of older fingerprints to their groups now.

    `dlq serve` does this automatically. It can be interrupted and continued.
    """
    async with desk.office() as office:
        moved = await office.groups.regroup(desk.by(""))
    if desk.as_json:
        desk.document({"moved": moved})
        return
    desk.tell(f"{many(moved, 'letter')} moved. Every letter is in its group.")


def _show_done(desk: Desk, done: Regrouped, text: str) -> None:
    if desk.as_json:
        desk.document(done)
    else:
        desk.tell(text)


def _hint(desk: Desk, name: str) -> None:
    if not desk.as_json:
        desk.hint(f"Undo it: {desk.dlq} groups undo {clean(name)}")


_NARROW: Final = 100
_WITH_TIMES: Final = 61  # columns from which there is room for shares and times
_WITH_STATUS: Final = 53  # columns from which there is room for the status
_STATUS: Final = 11  # columns that the status takes
_SHORT: Final = 10
_SHOWN: Final = 25  # groups, unless --limit is given
_MAX_ENTRIES: Final = 100  # of the audit
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
    text: Annotated[str, Parameter(show_default=False)] = "",
    order: GroupOrder = GroupOrder.LARGEST,
    limit: AtMost = None,
    after: str | None = None,
    desk: AtDesk,
) -> None:
    """
    List problems: letters with the same error in the same place are one group.

    If there are more, standard error names the command that continues the list.

    Args:
        source: Only groups of this mailbox.
        status: Only groups with this status.
        all_: Also list groups without open letters, and snoozed and muted groups.
        text: Only groups whose error, place, code or owner contains this.
        order: Those with most open letters first, or those with the latest death.
        limit: The most entries to show (default: 25; with --json, all).
        after: Continue a list: the value that the earlier list printed at its end.
    """
    lines: list[GroupLine] = []
    most = limit or (None if desk.as_json else _SHOWN)
    async with desk.office() as office:

        async def read(size: int, after: str | None) -> tuple[Sequence[GroupLine], str | None]:
            page = await office.groups.list(
                source=source,
                status=status,
                everything=all_,
                text=text,
                order=order,
                limit=size,
                after=after,
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
        desk.hint(f"Show what the letters of a group share: {desk.dlq} groups show {name}")
        desk.hint(f"List the letters of a group: {desk.dlq} list group:{name}")
    elif not desk.as_json:
        desk.tell(_nothing(status, everything=all_))
    words = ["groups", *(["--source", source] if source else [])]
    words += ["--status", status] if status else []
    words += ["--all"] if all_ else []
    words += ["--text", text] if text else []
    words += ["--order", order] if order is not GroupOrder.LARGEST else []
    show_next_page(desk, words, limit, after)


@app.command
async def show(group: str, /, *, desk: AtDesk) -> None:
    """
    Show the status of a group, what its letters have in common, and its notes.

    The newest letters are compared. Values that nearly all of them share, and that are
    rare in other groups of the mailbox, come first. Secrets are masked.

    Args:
        group: The name of the group, or the beginning of it.
    """
    async with desk.office() as office:
        line = await office.groups.get(group)
        entries = await office.audit(target=line.fingerprint, limit=_MAX_ENTRIES)
        variants = await office.groups.variants(line.fingerprint)
    if desk.as_json:
        desk.document({"group": line, "said": entries, "variants": variants})
        return
    _page(desk, line)
    show_variants(desk, variants)
    for entry in entries:
        desk.show(indented(_entry_text(entry)))


@app.command
async def ack(*groups: str, owner: str | None = None, reason: Reason = "", desk: AtDesk) -> None:
    """
    Acknowledge groups: their status becomes ongoing, whatever it was before.

    Args:
        groups: The names of the groups, or the beginnings of them.
        owner: The person who is responsible for them; '' removes the owner.
        reason: What you know; becomes the note of the groups, and is recorded in the audit.
    """
    await _set_status(desk, groups, GroupStatus.ONGOING, reason, owner=owner)


@app.command
async def resolve(
    *groups: str,
    version: Annotated[str, Parameter(name="--in", show_default=False)] = "",
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Mark groups as resolved. A new letter makes a group regressed.

    The letters of the groups do not change: replay or close them.

    Args:
        groups: The names of the groups, or the beginnings of them.
        version: The first version without the problem. Letters of older versions
            do not make the group regressed.
        reason: Why; becomes the note of the groups, and is recorded in the audit.
    """
    await _set_status(desk, groups, GroupStatus.RESOLVED, reason, version=version)


@app.command
async def snooze(
    *groups: str, span: Annotated[str, Parameter(name="--for")], reason: Reason = "", desk: AtDesk
) -> None:
    """
    Hide groups from the list for a while. Then their status is ongoing.

    Args:
        groups: The names of the groups, or the beginnings of them.
        span: The time, such as 90m, 24h, 7d or 2w.
        reason: Why; becomes the note of the groups, and is recorded in the audit.
    """
    length = duration(span.strip().lower())
    if length is None or not timedelta() < length <= _LONGEST_SNOOZE:
        raise ConfigError(
            f"--for must be a time of up to a year, such as 90m, 24h, 7d or 2w, got {span!a}"
        )
    until = desk.clock.now() + length
    await _set_status(desk, groups, GroupStatus.SNOOZED, reason, until=until)


@app.command
async def mute(*groups: str, reason: Reason = "", desk: AtDesk) -> None:
    """
    Hide groups from the list until their status is changed.

    Args:
        groups: The names of the groups, or the beginnings of them.
        reason: Why; becomes the note of the groups, and is recorded in the audit.
    """
    await _set_status(desk, groups, GroupStatus.MUTED, reason)


for command in (merge, split, undo, rules, regroup):
    app.command(command)


def group_table(lines: Sequence[GroupLine], now: datetime, width: int) -> Table:
    """Return a table of groups, one line each."""
    # The status is shown only if a group has another one than new.
    has_status = any(line.status is not GroupStatus.NEW for line in lines)
    # Names of groups have to be typed, so other columns are left out first.
    with_status = has_status and width >= _WITH_STATUS
    is_narrow = width < _WITH_TIMES + _STATUS * with_status
    shown = table()
    number_column(shown, "open")
    if not is_narrow:
        number_column(shown, "share")
    name_column(shown, "source", most=18 if width >= _NARROW else 12)
    if with_status:
        firm_column(shown, "status", most=24 if width >= _NARROW else 9)
    text_column(shown, "error")
    if width >= WIDE:
        number_column(shown, "deaths")
        firm_column(shown, "first seen")
    if not is_narrow:
        firm_column(shown, "last seen")
    firm_column(shown, "group")
    for line in lines:
        cells: list[RenderableType] = [
            number(line.open, "bold"),
            *([] if is_narrow else [cell(percent(line.share), "dim")]),
            Name(line.source),
        ]
        if with_status:
            cells.append(cell(_standing(line), _STYLES.get(line.status, "")))
        cells.append(cell(_what(line)))
        if width >= WIDE:
            cells += [number(line.total), cell(ago(line.first_seen, now))]
        if not is_narrow:
            cells.append(cell(ago(line.last_seen, now)))
        cells.append(cell(_group_name(line, width), "cyan"))
        shown.add_row(*cells)
    return shown


def _group_name(line: GroupLine, width: int) -> str:
    """Return the name to type after `group:`, whole if there is room."""
    if width >= _NARROW or len(line.fingerprint) <= _SHORT:
        return line.fingerprint
    return f"{line.fingerprint[:_SHORT]}*"


async def _set_status(
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
        raise ConfigError("name at least one group: `dlq groups` lists them")
    async with desk.office() as office:
        for name in names:
            line = await office.groups.set_status(
                name, status, desk.by(reason), owner=owner, until=until, version=version
            )
            if desk.as_json:
                desk.document(line)
                continue
            desk.tell(f"{line.fingerprint} is {_standing(line)}: {_what(line)}")
            if line.open and status is GroupStatus.RESOLVED:
                query = f"group:{line.fingerprint}"
                letters = many(line.open, "letter")
                dry = f"{desk.dlq} replay {query} --dry-run"
                desk.hint(f"{letters} of the group still open: {dry}")


def _page(desk: Desk, line: GroupLine) -> None:
    now = desk.clock.now()
    where = line.frame.partition("#")[0]  # the part after # is a hash, for grouping only
    title = Text("Group ", style="bold")
    title.append(clean(line.fingerprint), style="bold cyan")
    title.append(f"  {line.status}", style=_STYLES.get(line.status, ""))
    desk.show(title)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, text in (
        ("error", _what(line)),
        ("where", " · ".join(part for part in (line.source, where) if part)),
        ("letters", f"{line.open:,} open, {many(line.total, 'death')}"),
        ("seen", f"first {ago(line.first_seen, now)}, last {ago(line.last_seen, now)}"),
        ("status", _standing(line) if line.since else ""),
        ("owner", line.owner or ""),
        ("note", line.note),
    ):
        if text:
            facts.add_row(name, Text(clean(text)))
    desk.show(indented(facts, below=1))


def _entry_text(entry: AuditEntry) -> Text:
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
        "No groups: no letters have been filed yet."
        if everything
        else "No groups with open letters. Show snoozed and muted groups with --all."
    )
