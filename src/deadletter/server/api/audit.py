"""The audit: who did what when and why."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from litestar import Request, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.letter import AuditEntry
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import pattern
from deadletter.office.letters import of_sources
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Limit

_OF_REPLAYS: Final = frozenset({"replay", "campaign"})
LAST: Final = 2**53  # as far as every JSON reader counts
_STEP: Final = 500  # entries looked at together
_STEPS: Final = 40  # in one request
_RESTS: Final = 1_000


class Acts(Struct, frozen=True, kw_only=True):
    """A page of the audit, oldest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: int | None = None


class AuditPositions:
    """
    Position up to which entries were searched for a caller, after one they have.

    Others' entries may be many between two of theirs, and none of them is to be told
    of, not even where they are: so the server remembers it for them.
    """

    def __init__(self) -> None:
        self._reached: dict[tuple[str, str | None, int], int] = {}

    def reached(self, who: Identity, target: str | None, after: int) -> int:
        """From where to look on behind the entry `after`."""
        return self._reached.get((who.principal, target, after), after)

    def rest(self, who: Identity, target: str | None, after: int, at: int) -> None:
        """Nothing between `after` and `at` is any of their business."""
        while len(self._reached) >= _RESTS:
            del self._reached[next(iter(self._reached))]
        self._reached[who.principal, target, after] = at


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
) -> Acts:
    """
    Return audit entries, oldest first. Each hash covers the entry before.

    Those limited to some mailboxes see what was done with their letters, and with the
    replays they planned. Their page may be short, or empty, and still have an `after`,
    which is never that of an entry they do not see: ask again with it.
    """
    if who.sources:
        state = request.app.state
        if "rests" not in state:
            state.rests = AuditPositions()
        return await _own(context, who, state.rests, target, after, limit)
    found = await context.office.audit(target=target, after=after, limit=limit)
    more = found[-1].seq if len(found) == limit else None
    return Acts(entries=tuple(found), after=more)


async def _own(  # noqa: PLR0917 -- what was asked for
    context: ServerContext,
    who: Identity,
    rests: AuditPositions,
    target: str | None,
    after: int,
    limit: int,
) -> Acts:
    entries: list[AuditEntry] = []
    at = rests.reached(who, target, after)
    for _ in range(_STEPS):
        found = await context.office.audit(target=target, after=at, limit=_STEP)
        entries += await visible(context, who, found)
        if len(entries) >= limit:
            return Acts(entries=tuple(entries[:limit]), after=entries[limit - 1].seq)
        if len(found) < _STEP:
            return Acts(entries=tuple(entries))
        at = found[-1].seq
    last = entries[-1].seq if entries else after
    rests.rest(who, target, last, at)
    return Acts(entries=tuple(entries), after=last)


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
    """The replays that somebody planned."""
    own: set[str] = set()
    after = None
    while page := await context.store.campaigns(limit=_STEP, owner=who.principal, after=after):
        own.update(one.id for one in page)
        after = page[-1].id
    return own


routes: Final[list[Any]] = [list_audit]
