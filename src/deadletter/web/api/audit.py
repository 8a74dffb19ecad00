"""The audit: who did what when and why."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from litestar import get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Pass, Role
from deadletter.core.letter import AuditEntry
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.pattern import pattern
from deadletter.office.letters import of_sources
from deadletter.web.auth.guards import needs
from deadletter.web.given import Here, Who
from deadletter.web.paging import Limit
from deadletter.web.place import Place

_OF_REPLAYS: Final = frozenset({"replay", "campaign"})
LAST: Final = 2**53  # as far as every JSON reader counts


class Acts(Struct, frozen=True, kw_only=True):
    """Some of the audit, oldest first; `after` continues it."""

    entries: tuple[AuditEntry, ...]
    after: int | None = None


@get("/audit", guards=[needs(Role.READER)])
async def list_audit(
    place: Here,
    who: Who,
    target: Annotated[
        str | None,
        QueryParameter(max_length=600, description="A letter, group, queue or replay."),
    ] = None,
    after: Annotated[int, QueryParameter(ge=0, le=LAST)] = 0,
    limit: Limit = 100,
) -> Acts:
    """
    What was done, oldest first. Entries are chained: each hash covers the one before.

    Those limited to some mailboxes see what was done with their letters, and with the
    replays they started.
    """
    found = await place.store.audit(target=target, after=after, limit=limit)
    return Acts(
        entries=tuple(await visible(place, who, found)),
        after=found[-1].seq if len(found) == limit else None,
    )


async def visible(
    place: Place, who: Pass, entries: Sequence[AuditEntry]
) -> Sequence[AuditEntry]:
    """Those that are about the caller's letters and mailboxes, and own replays."""
    if not who.sources or not entries:
        return entries
    targets = tuple({pattern((entry.target,)) for entry in entries})
    node = of_sources(Term("id", Op.IS, targets), who.sources)
    page = await place.letters.search(node, limit=len(targets))
    seen = {head.id for head in page.heads}.union(who.sources)
    about = {entry.target for entry in entries if entry.action in _OF_REPLAYS} - seen
    for target in about:
        found = await place.store.campaigns(limit=1, begins=target, owner=who.principal)
        seen.update(one.id for one in found)
    return [entry for entry in entries if entry.target in seen]


routes: Final[list[Any]] = [list_audit]
