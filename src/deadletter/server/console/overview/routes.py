"""The route of the overview and of its parts."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get
from litestar.params import FromQuery, QueryParameter

from deadletter.core.access import Role
from deadletter.core.deaths import By
from deadletter.server.acting.office_views import owner_of
from deadletter.server.auth.guards import needs
from deadletter.server.console.badges import load_badges
from deadletter.server.console.pages import About, path_to, render_page, render_part, shared_part
from deadletter.server.context import Here, Who

from .deaths import Span, first_span
from .page import Asked, Part, load_overview
from .sight import Sight

_ADDRESS: Final = "hx-replace-url"
_OF_A_SPAN: Final = (None, "deaths", "chosen")


@get("/", guards=[needs(Role.READER)], include_in_schema=False)
async def show_overview(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    span: FromQuery[Span | None] = None,
    by: FromQuery[By] = By.GROUP,
    begin: Annotated[str, QueryParameter(name="from", max_length=40)] = "",
    end: Annotated[str, QueryParameter(name="to", max_length=40)] = "",
    part: Annotated[Part | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show the overview, or one part of it."""
    sight = Sight(request, context, who)
    if span is None:  # which costs something, in a large office
        span = await first_span(sight) if part in _OF_A_SPAN else Span.DAY
    asked = Asked(span=span, by=By.GROUP if by is By.NONE else by, begin=begin, end=end)
    if part == "chosen":
        # A chosen span belongs to the address: what is seen can be sent to somebody.
        page = await load_overview(sight, asked, part)
        shown = path_to("", span=asked.span, by=asked.by, **{"from": begin, "to": end})
        return render_part(request, f"overview/{part}.html", page, headers={_ADDRESS: shown})
    if part is not None:
        return await shared_part(
            request,
            f"overview/{part}.html",
            (span, by, who.sources, owner_of(who)),
            lambda: load_overview(sight, asked, part),
        )
    page = await load_overview(sight, asked)
    about = About(title="Overview", screen="overview", command="dlq", api="/needs")
    return await render_page(request, "overview/page.html", page, about)


@get("/badges", guards=[needs(Role.READER)], include_in_schema=False)
async def show_badges(request: Request[Any, Any, Any], context: Here, who: Who) -> Response[bytes]:
    """Show the numbers of the navigation."""
    key = who.sources, owner_of(who)
    return await shared_part(request, "parts/badges.html", key, lambda: load_badges(context, who))


routes: Final[list[Any]] = [show_overview, show_badges]
