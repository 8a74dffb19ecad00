"""The navigation as a part: its badges count while a page is open."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.server.auth.guards import needs
from deadletter.server.console.badges import Badges
from deadletter.server.console.pages import render_part, shared_badges
from deadletter.server.console.screens import Screen, screens_for
from deadletter.server.context import Who


class Navigation(Struct, frozen=True, kw_only=True):
    """The entries of the navigation with their badges."""

    sections: tuple[tuple[Screen, ...], ...]
    badges: Badges
    screen: str  # that is shown


@get("/badges", guards=[needs(Role.READER)], include_in_schema=False)
async def show_badges(
    request: Request[Any, Any, Any],
    who: Who,
    screen: Annotated[str, QueryParameter(max_length=40)] = "",
) -> Response[bytes]:
    """Return the navigation with its badges as they are now."""
    badges = await shared_badges(request, who)
    page = Navigation(sections=screens_for(who), badges=badges, screen=screen)
    return render_part(request, "letters/parts/badges.html", page)


routes: Final[list[Any]] = [show_badges]
