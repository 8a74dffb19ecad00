"""The route that undoes an act."""

from typing import Any, Final

from litestar import Request, Response, post
from litestar.params import FromPath

from deadletter.core.access import Role
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who

from .pages import Console, done, page_before


@post("/undo/{key:str}", guards=[needs(Role.OPERATOR)], include_in_schema=False, status_code=200)
async def undo(
    request: Request[Any, Any, Any], context: Here, who: Who, key: FromPath[str]
) -> Response[bytes]:
    """Undo an act of the person who asks."""
    console: Console = request.app.state.console
    notice = await console.undoing.take(who, key)(context, who)
    return done(request, notice, to=page_before(request))


routes: Final[list[Any]] = [undo]
