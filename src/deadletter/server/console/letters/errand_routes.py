"""The page of a long act: how far it is, and a button that stops it."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get, post
from litestar.params import FromPath, QueryParameter
from msgspec import Struct, structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import Conflict
from deadletter.core.text import many
from deadletter.server.auth.guards import needs
from deadletter.server.console.errands import Errand
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import About, Console, done, render_page, render_part
from deadletter.server.context import Who


class ErrandPage(Struct, frozen=True, kw_only=True):
    """How far a long act is."""

    title: str
    path: str
    seen: int
    changed: int
    total: int
    began: datetime
    ended: datetime | None
    ended_early: str
    notice: Notice | None
    is_stopping: bool


def shown_to(who: Identity, errand: Errand) -> ErrandPage:
    """Return a long act as a person sees it."""
    notice = errand.notice
    if notice and errand.who.principal != who.principal:  # only its author can undo it
        notice = structs.replace(notice, undo="")
    return ErrandPage(
        title=errand.title,
        path=errand.path,
        seen=errand.progress.seen,
        changed=errand.progress.changed,
        total=errand.total,
        began=errand.began,
        ended=errand.ended,
        ended_early=errand.ended_early,
        notice=notice,
        is_stopping=bool(errand.stop),
    )


@get("/errands/{key:str}", guards=[needs(Role.OPERATOR)], include_in_schema=False)
async def show_errand(
    request: Request[Any, Any, Any],
    who: Who,
    key: FromPath[str],
    part: Annotated[Literal["progress"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show how far a long act is, or what it has done."""
    console: Console = request.app.state.console
    page = shown_to(who, console.errands.find(who, key))
    if part is not None:
        return render_part(request, "letters/parts/errand.html", page)
    about = About(title=page.title, screen="letters", command="dlq audit", api="/audit/latest")
    return await render_page(request, "letters/errand.html", page, about)


@post(
    "/errands/{key:str}/stop",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
)
async def stop_errand(
    request: Request[Any, Any, Any], who: Who, key: FromPath[str]
) -> Response[bytes]:
    """Stop a long act after the step that is under way."""
    console: Console = request.app.state.console
    errand = console.errands.find(who, key)
    if errand.ended is not None:
        raise Conflict("this has ended already: nothing was stopped")
    errand.stop = errand.stop or f"{who.name} stopped it"
    left = errand.total - errand.progress.seen
    text = f"It stops after this step. About {many(left, 'letter')} will be left as they are."
    return done(request, Notice(text=text), to=errand.path)


routes: Final[list[Any]] = [show_errand, stop_errand]
