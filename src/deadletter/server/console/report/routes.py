"""The shift report: what came, what was done by whom, what is open and what waits."""

from datetime import datetime
from typing import Annotated, Any, Final

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import error_name
from deadletter.core.query.fields import instant
from deadletter.core.text import cut
from deadletter.office.deaths import moment
from deadletter.office.groups import GroupLine
from deadletter.office.triage.shift_report import ReplayLine, ShiftReport, markdown
from deadletter.server.acting.office_views import report_for
from deadletter.server.auth.guards import needs
from deadletter.server.console.links import short_name
from deadletter.server.console.overview.needs import Needs, rows_of
from deadletter.server.console.pages import About, path_to, render_page
from deadletter.server.context import Here, Who

SHIFT: Final = "8h"
_SPANS: Final = ("8h", "12h", "24h", "7d")
_LONGEST: Final = 160  # characters of a text


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group that is new or regressed."""

    name: str
    text: str
    link: str
    status: str
    source: str
    owner: str
    open: int
    total: int


class DeedRow(Struct, frozen=True, kw_only=True):
    """What one person did, in numbers."""

    actor: str
    action: str
    times: int
    targets: int
    link: str  # to these entries of the audit


class ReplayRow(Struct, frozen=True, kw_only=True):
    """A replay of the shift, in numbers of letters."""

    line: ReplayLine
    query: str
    link: str
    name: str


class Report(Struct, frozen=True, kw_only=True):
    """Everything that the report shows; without `since` only why it is invalid."""

    typed: str
    spans: tuple[tuple[str, str, None, bool], ...]
    since: datetime | None = None
    until: datetime | None = None
    died: int = 0
    all_died: bool = True
    open: int = 0
    new: tuple[GroupRow, ...] = ()
    regressed: tuple[GroupRow, ...] = ()
    deeds: tuple[DeedRow, ...] = ()
    all_deeds: bool = True
    replays: tuple[ReplayRow, ...] = ()
    needs: Needs | None = None
    markdown: str = ""
    is_limited: bool = False
    wrong: str = ""


@get("/report", guards=[needs(Role.READER)], include_in_schema=False)
async def show_report(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    since: Annotated[str, QueryParameter(max_length=40)] = SHIFT,
) -> Response[bytes]:
    """Show what happened since a time."""
    since = since.strip() or SHIFT
    spans = tuple((one, path_to("report", since=one), None, one == since) for one in _SPANS)
    about = About(title="Shift report", screen="overview", command=f"dlq report --since {since}")
    try:
        begin = moment(since, context.clock.now())
    except ConfigError as error:
        page = Report(typed=since, spans=spans, wrong=f"{error}.")
        return await render_page(request, "report/page.html", page, about)
    found = await report_for(context, who, begin)
    page = report_page(found, since, spans, is_limited=bool(who.sources))
    about = About(
        title=about.title,
        screen=about.screen,
        command=about.command,
        api=path_to("report", since=instant(begin)),
    )
    return await render_page(request, "report/page.html", page, about)


def report_page(
    found: ShiftReport,
    typed: str,
    spans: tuple[tuple[str, str, None, bool], ...] = (),
    *,
    is_limited: bool = False,
) -> Report:
    """Return a report as rows."""
    return Report(
        typed=typed,
        spans=spans,
        since=found.since,
        until=found.until,
        died=found.died.letters,
        all_died=found.died.is_all,
        open=found.open,
        new=tuple(map(_group, found.new)),
        regressed=tuple(map(_group, found.regressed)),
        deeds=tuple(
            DeedRow(
                actor=one.actor,
                action=one.action,
                times=one.acts,
                targets=one.targets,
                link=path_to("audit", actor=one.actor, action=one.action.split(" ")[0]),
            )
            for one in found.deeds
        ),
        all_deeds=found.all_deeds,
        replays=tuple(
            ReplayRow(
                line=one,
                query=cut(one.query, _LONGEST) or "all letters",
                link=path_to("replays", one.id),
                name=short_name(one.id),
            )
            for one in found.replays
        ),
        needs=rows_of(found.needs),
        markdown=markdown(found),
        is_limited=is_limited,
    )


def _group(line: GroupLine) -> GroupRow:
    return GroupRow(
        name=error_name(line.error_type) or "failure",
        text=cut(line.text, _LONGEST),
        link=path_to("groups", line.fingerprint),
        status=line.status,
        source=line.source,
        owner=line.owner or "",
        open=line.open,
        total=line.total,
    )


routes: Final[list[Any]] = [show_report]
