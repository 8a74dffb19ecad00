"""
What callers see of the office as a whole: audit, needs and report.

Callers limited to some mailboxes see what is about these, and own replays.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any, Final

from litestar import Request
from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.letter import AuditEntry
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import pattern
from deadletter.office.audit import AuditFilter
from deadletter.office.letter_search import of_sources
from deadletter.office.triage.attention import Need, Problem
from deadletter.office.triage.shift_report import LONGEST, ShiftReport
from deadletter.server.context import ServerContext

from .intake_acts import list_intakes

LAST: Final = 2**53  # the largest integer that every JSON reader supports
STEP: Final = 500  # entries of one query
STEPS: Final = 40  # queries of one request
_OF_REPLAYS: Final = frozenset({"replay", "campaign"})
_POSITIONS: Final = 1_000  # positions that are remembered


class AuditPage(Struct, frozen=True, kw_only=True):
    """A page of the audit, oldest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: int | None = None


class LatestAudit(Struct, frozen=True, kw_only=True):
    """A page of the audit, newest first; `before` continues it."""

    entries: tuple[AuditEntry, ...]
    before: int | None = None


class AuditPositions:
    """
    Positions up to which the audit was searched for limited callers.

    Between two entries that a caller may see, there may be many entries of others. The
    caller must not learn their positions, so the server remembers them.
    """

    def __init__(self) -> None:
        self._positions: dict[tuple[str, Hashable, int], int] = {}

    def position(self, who: Identity, wanted: Hashable, start: int) -> int:
        """Return the position from which to search for entries behind the entry `start`."""
        return self._positions.get((who.principal, wanted, start), start)

    def remember(self, who: Identity, wanted: Hashable, start: int, at: int) -> None:
        """Remember that the caller may see no entry between `start` and `at`."""
        while len(self._positions) >= _POSITIONS:
            del self._positions[next(iter(self._positions))]
        self._positions[who.principal, wanted, start] = at


def audit_positions(request: Request[Any, Any, Any]) -> AuditPositions:
    """Return the positions that this server remembers."""
    state = request.app.state
    if "audit_positions" not in state:
        state.audit_positions = AuditPositions()
    positions: AuditPositions = state.audit_positions
    return positions


async def audit_for(  # noqa: PLR0917 -- the parameters of a request
    context: ServerContext,
    who: Identity,
    positions: AuditPositions,
    target: str | None,
    after: int,
    limit: int,
) -> AuditPage:
    """
    Return entries that the caller may see, oldest first.

    For limited callers, a page can be short or empty and still have an `after`.
    """
    if not who.sources:
        known = await context.office.audit(target=target, after=after, limit=limit)
        more = known[-1].seq if len(known) == limit else None
        return AuditPage(entries=tuple(known), after=more)
    entries: list[AuditEntry] = []
    at = positions.position(who, target, after)
    for _ in range(STEPS):
        found = await context.office.audit(target=target, after=at, limit=STEP)
        entries += await visible(context, who, found)
        if len(entries) >= limit:
            return AuditPage(entries=tuple(entries[:limit]), after=entries[limit - 1].seq)
        if len(found) < STEP:
            return AuditPage(entries=tuple(entries))
        at = found[-1].seq
    last = entries[-1].seq if entries else after
    positions.remember(who, target, last, at)
    return AuditPage(entries=tuple(entries), after=last)


async def latest_audit_for(  # noqa: PLR0917 -- the parameters of a request
    context: ServerContext,
    who: Identity,
    positions: AuditPositions,
    wanted: AuditFilter,
    before: int | None,
    limit: int,
) -> LatestAudit:
    """
    Return entries that the caller may see, newest first.

    For limited callers, a page can be short or empty and still have a `before`.
    """
    if not who.sources:
        found = await context.office.latest_audit(wanted, before=before, limit=limit)
        more = found[-1].seq if len(found) == limit else None
        return LatestAudit(entries=tuple(found), before=more)
    entries: list[AuditEntry] = []
    start = LAST if before is None else before
    at = positions.position(who, wanted, start)
    for _ in range(STEPS):
        found = await context.office.latest_audit(wanted, before=at, limit=STEP)
        entries += await visible(context, who, found)
        if len(entries) >= limit:
            return LatestAudit(entries=tuple(entries[:limit]), before=entries[limit - 1].seq)
        if len(found) < STEP:
            return LatestAudit(entries=tuple(entries))
        at = found[-1].seq
    last = entries[-1].seq if entries else start
    positions.remember(who, wanted, last, at)
    return LatestAudit(entries=tuple(entries), before=last)


async def visible(
    context: ServerContext, who: Identity, entries: Sequence[AuditEntry]
) -> Sequence[AuditEntry]:
    """Return entries about the caller's letters, mailboxes and own replays."""
    if not who.sources or not entries:
        return entries
    targets = tuple({pattern((entry.target,)) for entry in entries})
    node = of_sources(Term("id", Op.IS, targets), who.sources)
    page = await context.office.letters.search(node, limit=len(targets))
    seen = {head.id for head in page.heads}.union(who.sources)
    about = {entry.target for entry in entries if entry.action in _OF_REPLAYS} - seen
    if about:
        seen |= await _replays(context, who)
    return [entry for entry in entries if entry.target in seen]


async def _replays(context: ServerContext, who: Identity) -> set[str]:
    """Return the ids of the caller's own replays."""
    own: set[str] = set()
    after = None
    while page := await context.store.campaigns(limit=STEP, owner=who.principal, after=after):
        own.update(one.id for one in page)
        after = page[-1].id
    return own


async def needs_for(context: ServerContext, who: Identity) -> Sequence[Need]:
    """Return what needs somebody, as far as the caller may see it."""
    return await context.office.triage.needs(
        sources=who.sources, owner=owner_of(who), problems=_problems(context, who)
    )


async def report_for(context: ServerContext, who: Identity, since: datetime) -> ShiftReport:
    """Return what happened since a time, as far as the caller may see it."""
    return await context.office.triage.report(
        since,
        sources=who.sources,
        owner=owner_of(who),
        entries=await _entries_since(context, who, since) if who.sources else None,
        problems=_problems(context, who),
    )


def owner_of(who: Identity) -> str | None:
    """Return the principal whose replays alone a limited caller sees."""
    return who.principal if who.sources else None


def _problems(context: ServerContext, who: Identity) -> tuple[Problem, ...]:
    if who.sources:
        return ()
    loops = [Problem(one.loop, one.reason) for one in context.complaints()]
    intakes = [
        Problem(one.name, one.trouble, one.trouble_since, is_intake=True)
        for one in list_intakes(context, who)
        if one.trouble
    ]
    return (*loops, *intakes)


async def _entries_since(
    context: ServerContext, who: Identity, since: datetime
) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    before: int | None = None
    for _ in range(LONGEST // STEP):
        found = await context.office.latest_audit(
            AuditFilter(since=since), before=before, limit=STEP
        )
        entries += await visible(context, who, found)
        if len(found) < STEP:
            break
        before = found[-1].seq
    return entries
