"""One mailbox: what it is, who works it, what died in it, and when."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from litestar import Request
from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.deaths import By
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.letter import AuditEntry
from deadletter.core.text import clean, cut, many, span
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.office.deaths import Mark, MarkKind
from deadletter.office.groups import GroupLine
from deadletter.office.workers import WorkerLine, workers_of
from deadletter.ports import QueueInfo, QueueOptions
from deadletter.server.acting.mailbox_acts import no_mailbox
from deadletter.server.console.charts import SERIES, ChartMark, Plot, Series
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

from .broker_look import looks_of
from .mailbox_rows import Known, MailboxRow, load_known, mailbox_row

_GROUPS: Final = 10
_ACTS: Final = 8
_STEP: Final = timedelta(hours=1)
_SHOWN: Final = 200  # characters of an error


class WorkerRow(Struct, frozen=True, kw_only=True):
    """One worker, as far as this mailbox is concerned."""

    line: WorkerLine
    in_flight: int
    slots: int
    state: str
    trouble: str = ""


class GroupRow(Struct, frozen=True, kw_only=True):
    """One problem of this mailbox."""

    group: GroupLine
    path: str
    error: str
    text: str


class MailboxPage(Struct, frozen=True, kw_only=True):
    """Everything about one mailbox."""

    row: MailboxRow
    options: QueueOptions | None  # None: the broker did not say, or does not know it
    facts: tuple[tuple[str, str], ...]
    silent: str
    knows_workers: bool
    counts: bool
    workers: tuple[WorkerRow, ...]
    groups: tuple[GroupRow, ...]
    groups_path: str
    deaths: Plot | None
    acts: tuple[AuditEntry, ...]
    headline: str
    exists: bool  # in the broker, as far as it said


async def load_mailbox(
    request: Request[Any, Any, Any], who: Identity, name: str, patience: float
) -> MailboxPage:
    """Return one mailbox. Raises NotFound if nothing is known of it, or it is hidden."""
    context: ServerContext = request.app.state.context
    if not who.sees(name):
        raise no_mailbox(name)
    known = await load_known(request, who, patience)
    queues = {one.options.name: one for one in known.queues or ()}
    there = workers_of(known.workers, name)
    queue = queues.get(name)
    if queue is None and known.queues is not None:  # it may be a moment old
        looks_of(request).forget()
        known = await load_known(request, who, patience)
        queues = {one.options.name: one for one in known.queues or ()}
        queue = queues.get(name)
    if known.queues is not None and queue is None and name not in known.counts and not there:
        raise no_mailbox(name)
    row = mailbox_row(name, queues, known)
    groups = await context.office.groups.list(source=name, sources=who.sources, limit=_GROUPS)
    acts: Sequence[AuditEntry] = ()
    if not who.sources:
        acts = await latest_entries(
            context.store, AuditFilter(target=name), before=None, limit=_ACTS
        )
    return MailboxPage(
        row=row,
        options=queue.options if queue else None,
        facts=_facts(queue),
        silent=known.problem,
        knows_workers=known.knows_workers,
        counts=known.tallies,
        workers=tuple(_worker(one, name) for one in there),
        groups=tuple(map(_group, groups.groups)),
        groups_path=path_to("groups", source=name),
        deaths=await _deaths(context, who, name),
        acts=tuple(acts),
        headline=_headline(row, known),
        exists=queue is not None,
    )


def _headline(row: MailboxRow, known: Known) -> str:
    if row.brake is not None:
        return "Its brake is open: workers receive nothing, and no message is charged an attempt."
    if row.sums is not None and row.sums.problem:
        return "Its messages do not add up."
    if row.unworked and row.messages is not None:
        ready = many(row.messages.ready, "message is", "messages are")
        return f"{ready} ready, and no worker was heard of lately."
    parts = []
    if row.messages is not None:
        parts.append(f"{many(row.messages.ready, 'message')} ready")
        if row.messages.claimed is not None:
            parts.append(f"{row.messages.claimed:,} in hand")
    parts.append(many(row.open, "open letter"))
    if known.knows_workers:
        parts.append(many(row.workers, "worker"))
    return " · ".join(parts)


def _facts(queue: QueueInfo | None) -> tuple[tuple[str, str], ...]:
    if queue is None:
        return ()
    options = queue.options
    attempts = many(options.max_attempts, "attempt") if options.max_attempts else ""
    expires = span(options.expire_after) if options.expire_after else ""
    found = [
        ("dead queue", options.dead_queue or "none: letters are kept in the office alone"),
        ("limit", attempts or "as the policy of its worker says"),
        ("expiry", f"{expires} after sending" if expires else "as each message says"),
    ]
    if options.reference:
        found.append(("note", options.reference))
    return tuple(found)


def _worker(line: WorkerLine, mailbox: str) -> WorkerRow:
    box = next(one for one in line.mailboxes if one.mailbox == mailbox)
    state = "works"
    if line.is_silent:
        state = "silent"
    elif box.brake:
        state = "brake open"
    elif box.trouble:
        state = "not ready"
    trouble = "" if line.is_silent else box.brake or box.trouble
    return WorkerRow(
        line=line, in_flight=box.in_flight, slots=box.slots, state=state, trouble=clean(trouble)
    )


def _group(group: GroupLine) -> GroupRow:
    return GroupRow(
        group=group,
        path=path_to("groups", group.fingerprint),
        error=group.error_type.rpartition(".")[2] or str(group.code or group.trouble),
        text=cut(clean(group.text), _SHOWN),
    )


async def _deaths(context: ServerContext, who: Identity, name: str) -> Plot | None:
    """Return the deaths of 24 hours by version; None if the office does not count them."""
    try:
        chart = await context.office.deaths(
            source=name, sources=who.sources, by=By.VERSION, step=_STEP, most=5
        )
    except (ConfigError, NotFound):
        return None
    marks = await context.office.marks(since=chart.since, until=chart.until, sources=(name,))
    lines = chart.series()
    return Plot(
        id="mailbox-deaths",
        title=f"Deaths in {clean(name)} by version, the last 24 hours",
        since=chart.since,
        step=_STEP,
        series=tuple(
            Series(name=one or "no version", numbers=numbers, look=place if one else SERIES)
            for place, (one, numbers) in enumerate(lines.items(), 1)
        ),
        marks=tuple(_mark(one) for one in marks if one.mailbox == name),
    )


def _mark(mark: Mark) -> ChartMark:
    is_version = mark.kind is MarkKind.VERSION
    return ChartMark(
        kind="version" if is_version else "outage",
        at=mark.at,
        until=mark.until,
        word=cut(clean(mark.name), 20) if is_version else "brake",
        text=mark.text,
    )
