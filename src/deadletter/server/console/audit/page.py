"""The audit as a page: entries that were one act together, and whether their seals match."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, structs

from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry
from deadletter.core.query.fields import duration
from deadletter.core.seals import PLAIN, Chain
from deadletter.core.text import many
from deadletter.office.audit import AuditFilter, Run, runs_of
from deadletter.office.deaths import moment
from deadletter.ports import Examining
from deadletter.server.acting.office_views import LatestAudit
from deadletter.server.console.links import short_name, target_path
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

ENTRIES: Final = 500  # of one page
_RUNS: Final = 50
_SHOWN: Final = 20  # entries of one run
_LONGEST: Final = 300  # characters of a text
SPANS: Final = ("1h", "24h", "7d", "30d")
ACTIONS: Final = (
    *("move", "note", "edit", "reveal", "purge", "expire"),
    *("replay", "campaign", "confirm", "approve"),
    *("group", "regroup"),
    *("create", "update", "delete", "release"),
    *("save-search", "delete-search"),
    *("export", "import", "sign-in", "sign-out", "issue", "revoke", "block", "seal"),
)


class Asked(Struct, frozen=True, kw_only=True):
    """The filters of the audit, as they stand in the address."""

    actor: str = ""
    action: str = ""
    target: str = ""
    since: str = ""
    before: int | None = None

    @property
    def has_filters(self) -> bool:
        """Return whether some entries are left out."""
        return any((self.actor, self.action, self.target, self.since))

    def path(self, **changes: str) -> str:
        """Return the path of the audit with these filters."""
        fields = structs.asdict(self)
        fields["before"] = "" if self.before is None else str(self.before)
        return path_to("audit", **(fields | changes))

    @property
    def command(self) -> str:
        """Return the command that lists the same."""
        parts = ["dlq audit", _word(self.target)]
        parts += [f"--by {_word(self.actor)}"] if self.actor else []
        parts += [f"--action {_word(self.action)}"] if self.action else []
        parts += [f"--since {self.since}"] if duration(self.since) else []
        return " ".join(part for part in parts if part)


class Line(Struct, frozen=True, kw_only=True):
    """One act: an entry, or several of the same kind in a row."""

    at: datetime
    actor: str
    action: str
    target: str
    link: str
    detail: str
    reason: str
    numbers: str  # of its entries
    entries: tuple[AuditEntry, ...]  # the first few
    more: int  # entries that are not shown


class Seals(Struct, frozen=True, kw_only=True):
    """What the seals of the entries of a page say."""

    text: str
    broken: tuple[str, ...] = ()
    is_checked: bool = True  # False: they are made with a key that this server lacks


class AuditPage(Struct, frozen=True, kw_only=True):
    """A page of the audit, newest first."""

    asked: Asked
    lines: tuple[Line, ...]
    seals: Seals | None
    older: str
    newest: int  # the number of the newest entry; 0 if there is none
    actions: tuple[str, ...]
    json: str
    is_limited: bool
    wrong: str = ""


def filter_of(asked: Asked, now: datetime) -> AuditFilter:
    """Return the filter that was asked for. Raises ConfigError for an invalid time."""
    return AuditFilter(
        target=asked.target or None,
        actor=asked.actor or None,
        action=asked.action or None,
        since=moment(asked.since, now) if asked.since else None,
    )


def audit_page(
    context: ServerContext, asked: Asked, found: LatestAudit, *, is_limited: bool, wrong: str = ""
) -> AuditPage:
    """Return a page of entries that were found."""
    runs = runs_of(found.entries)
    shown = runs[:_RUNS]
    last = shown[-1].entries[-1].seq if shown else None
    before = last if len(runs) > _RUNS else found.before
    entries = [entry for run in shown for entry in run.entries]
    is_whole = not is_limited and not asked.has_filters
    return AuditPage(
        asked=asked,
        lines=tuple(map(_line, shown)),
        seals=_seals(context, entries, is_whole=is_whole) if entries else None,
        older="" if before is None else asked.path(before=str(before)),
        newest=found.entries[0].seq if found.entries else 0,
        actions=tuple(dict.fromkeys([*ACTIONS, *([asked.action] if asked.action else [])])),
        json=_json_path(context, asked),
        is_limited=is_limited,
        wrong=wrong,
    )


def _line(run: Run) -> Line:
    entry, targets = run.entry, run.targets
    first, last = run.entries[-1].seq, entry.seq
    path = target_path(entry.action, entry.target)
    kind = "letter" if path.startswith("/letters/") else "target"
    return Line(
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        target=short_name(entry.target) if targets == 1 else many(targets, kind),
        link=path if targets == 1 else "",
        detail=entry.detail,
        reason=entry.reason,
        numbers=f"{last:,}" if first == last else f"{first:,} to {last:,}",
        entries=run.entries[:_SHOWN],
        more=len(run.entries) - min(len(run.entries), _SHOWN),
    )


def _seals(context: ServerContext, entries: Sequence[AuditEntry], *, is_whole: bool) -> Seals:
    """Check the seals of these entries, and that they follow each other if none is left out."""
    store = context.store
    sealing = store.sealing if isinstance(store, Examining) else PLAIN
    oldest, newest = entries[-1], entries[0]
    if is_whole:
        chain = Chain(sealing, seq=oldest.seq - 1, previous=oldest.previous)
        chain.add(reversed(entries))
        span = f"Entries {oldest.seq:,} to {newest.seq:,}"
        text = f"{span} follow each other unbroken, and their seals match"
        if len(entries) == 1:
            text = f"The seal of entry {newest.seq:,} matches"
    else:
        chain = Chain(sealing)
        for entry in entries:
            one = Chain(sealing, seq=entry.seq - 1, previous=entry.previous)
            one.add([entry])
            chain.broken += one.broken
            chain.unknown += one.unknown
        text = f"The seals of these {len(entries):,} entries match"
        if len(entries) == 1:
            text = "The seal of this entry matches"
    if chain.broken:
        return Seals(text="The audit was changed.", broken=tuple(chain.broken[:5]))
    if chain.unknown:
        return Seals(
            text=f"{chain.unknown:,} of {len(entries):,} entries are sealed with a key that this"
            " server does not have: they were not checked.",
            is_checked=False,
        )
    rest = "" if is_whole and oldest.seq == 1 else " Other entries were not checked just now."
    return Seals(text=f"{text}.{rest}")


def _json_path(context: ServerContext, asked: Asked) -> str:
    try:
        since = filter_of(asked, context.clock.now()).since
    except ConfigError:
        since = None
    return path_to(
        *("api", "v1", "audit", "latest"),
        actor=asked.actor,
        action=asked.action,
        target=asked.target,
        since=_whole_second(since).isoformat().replace("+00:00", "Z") if since else "",
        limit=str(ENTRIES),
    )


def _whole_second(at: datetime) -> datetime:
    return at - timedelta(microseconds=at.microsecond)


def _word(text: str) -> str:
    if not text or (text.isascii() and text.replace("-", "").replace("_", "").isalnum()):
        return text
    quoted = text.replace("'", "'\\''")
    return f"'{quoted}'"
