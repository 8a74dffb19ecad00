"""Routes of the audit: who did what, when and why."""

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Final

from litestar import Request, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.letter import AuditEntry
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import pattern
from deadletter.office.audit import AuditFilter
from deadletter.office.letter_search import of_sources
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Limit, Since, in_utc

_OF_REPLAYS: Final = frozenset({"replay", "campaign"})
LAST: Final = 2**53  # the largest integer that every JSON reader supports
_STEP: Final = 500  # entries of one query
_STEPS: Final = 40  # queries of one request
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


@get("/audit", guards=[needs(Role.READER)])
async def list_audit(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    target: Annotated[
        str | None, QueryParameter(max_length=600, description="A letter, group, queue or replay.")
    ] = None,
    after: Annotated[int, QueryParameter(ge=0, le=LAST)] = 0,
    limit: Limit = 100,
) -> AuditPage:
    """
    Return audit entries, oldest first. Each hash covers the previous entry.

    A caller limited to some mailboxes sees entries about letters of these mailboxes, and
    about own replays. Such a page can be short or empty and still have an `after`:
    continue with it.
    """
    if who.sources:
        return await _own(context, who, _positions(request), target, after, limit)
    found = await context.office.audit(target=target, after=after, limit=limit)
    more = found[-1].seq if len(found) == limit else None
    return AuditPage(entries=tuple(found), after=more)


@get("/audit/latest", guards=[needs(Role.READER)])
async def latest_audit(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    target: Annotated[
        str | None, QueryParameter(max_length=600, description="A letter, group, queue or replay.")
    ] = None,
    actor: Annotated[str | None, QueryParameter(max_length=600, description="Who did it.")] = None,
    action: Annotated[
        str | None, QueryParameter(max_length=100, description="An action, such as `purge`.")
    ] = None,
    since: Since = None,
    before: Annotated[
        int | None,
        QueryParameter(ge=0, le=LAST, description="`before` of the previous page, to continue it."),
    ] = None,
    limit: Limit = 100,
) -> LatestAudit:
    """
    Return audit entries, newest first.

    A caller limited to some mailboxes sees entries about letters of these mailboxes, and
    about own replays. Such a page can be short or empty and still have a `before`:
    continue with it.
    """
    wanted = AuditFilter(target=target, actor=actor, action=action, since=in_utc(since))
    if who.sources:
        return await _own_latest(context, who, _positions(request), wanted, before, limit)
    found = await context.office.latest_audit(wanted, before=before, limit=limit)
    more = found[-1].seq if len(found) == limit else None
    return LatestAudit(entries=tuple(found), before=more)


def _positions(request: Request[Any, Any, Any]) -> AuditPositions:
    state = request.app.state
    if "audit_positions" not in state:
        state.audit_positions = AuditPositions()
    positions: AuditPositions = state.audit_positions
    return positions


async def _own_latest(  # noqa: PLR0917 -- the parameters of the request
    context: ServerContext,
    who: Identity,
    positions: AuditPositions,
    wanted: AuditFilter,
    before: int | None,
    limit: int,
) -> LatestAudit:
    entries: list[AuditEntry] = []
    start = LAST if before is None else before
    at = positions.position(who, wanted, start)
    for _ in range(_STEPS):
        found = await context.office.latest_audit(wanted, before=at, limit=_STEP)
        entries += await visible(context, who, found)
        if len(entries) >= limit:
            return LatestAudit(entries=tuple(entries[:limit]), before=entries[limit - 1].seq)
        if len(found) < _STEP:
            return LatestAudit(entries=tuple(entries))
        at = found[-1].seq
    last = entries[-1].seq if entries else start
    positions.remember(who, wanted, last, at)
    return LatestAudit(entries=tuple(entries), before=last)


async def _own(  # noqa: PLR0917 -- the parameters of the request
    context: ServerContext,
    who: Identity,
    positions: AuditPositions,
    target: str | None,
    after: int,
    limit: int,
) -> AuditPage:
    entries: list[AuditEntry] = []
    at = positions.position(who, target, after)
    for _ in range(_STEPS):
        found = await context.office.audit(target=target, after=at, limit=_STEP)
        entries += await visible(context, who, found)
        if len(entries) >= limit:
            return AuditPage(entries=tuple(entries[:limit]), after=entries[limit - 1].seq)
        if len(found) < _STEP:
            return AuditPage(entries=tuple(entries))
        at = found[-1].seq
    last = entries[-1].seq if entries else after
    positions.remember(who, target, last, at)
    return AuditPage(entries=tuple(entries), after=last)


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
    while page := await context.store.campaigns(limit=_STEP, owner=who.principal, after=after):
        own.update(one.id for one in page)
        after = page[-1].id
    return own


routes: Final[list[Any]] = [list_audit, latest_audit]
