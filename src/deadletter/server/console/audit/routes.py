"""The routes of the audit."""

from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.server.acting.office_views import (
    LAST,
    LatestAudit,
    audit_positions,
    latest_audit_for,
)
from deadletter.server.auth.guards import needs
from deadletter.server.console.pages import About, render_page, render_part
from deadletter.server.context import Here, Who

from .page import ENTRIES, Asked, audit_page, filter_of

_NEWER: Final = 100  # acts that are counted; more is `≥`


class Newer(Struct, frozen=True):
    """The acts since the page was made."""

    asked: Asked
    newest: int
    count: int
    is_all: bool


@get("/audit", guards=[needs(Role.READER)], include_in_schema=False)
async def show_audit(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    actor: Annotated[str, QueryParameter(max_length=600)] = "",
    action: Annotated[str, QueryParameter(max_length=100)] = "",
    target: Annotated[str, QueryParameter(max_length=600)] = "",
    since: Annotated[str, QueryParameter(max_length=40)] = "",
    before: Annotated[int | None, QueryParameter(ge=0, le=LAST)] = None,
    newest: Annotated[int, QueryParameter(ge=0, le=LAST)] = 0,
    part: Annotated[Literal["newer", "rows"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show who did what, newest first, or how many acts came since."""
    asked = Asked(
        actor=actor.strip(),
        action=action.strip(),
        target=target.strip(),
        since=since.strip(),
        before=before,
    )
    positions = audit_positions(request)
    try:
        wanted = filter_of(asked, context.clock.now())
    except ConfigError as error:
        wrong = f"{error}."
        page = audit_page(
            context, asked, LatestAudit(entries=()), is_limited=bool(who.sources), wrong=wrong
        )
        return await _whole(request, page)
    if part == "newer":
        latest = await latest_audit_for(context, who, positions, wanted, None, _NEWER + 1)
        count = sum(entry.seq > newest for entry in latest.entries)
        fresh = Newer(asked, newest, min(count, _NEWER), is_all=count <= _NEWER)
        return render_part(request, "audit/newer.html", fresh)
    found = await latest_audit_for(context, who, positions, wanted, before, ENTRIES)
    page = audit_page(context, asked, found, is_limited=bool(who.sources))
    if part == "rows":
        return render_part(request, "audit/rows.html", page)
    return await _whole(request, page)


async def _whole(request: Request[Any, Any, Any], page: Any) -> Response[bytes]:
    api = page.json.removeprefix("/api/v1")
    about = About(title="Audit", screen="audit", command=page.asked.command, api=api)
    return await render_page(request, "audit/page.html", page, about)


routes: Final[list[Any]] = [show_audit]
