"""Routes of the audit: who did what, when and why."""

from typing import Annotated, Any, Final

from litestar import Request, get
from litestar.params import QueryParameter

from deadletter.core.access import Role
from deadletter.office.audit import AuditFilter
from deadletter.server.acting.office_views import (
    LAST,
    AuditPage,
    LatestAudit,
    audit_for,
    audit_positions,
    latest_audit_for,
)
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.search import Limit, Since, in_utc


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
    return await audit_for(context, who, audit_positions(request), target, after, limit)


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
    return await latest_audit_for(context, who, audit_positions(request), wanted, before, limit)


routes: Final[list[Any]] = [list_audit, latest_audit]
