"""Acts on access: create and revoke tokens, end sessions."""

from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from litestar import Request, Response, get, post
from litestar.exceptions import PermissionDeniedException
from litestar.params import FromPath
from msgspec import Struct, structs

from deadletter.core.access import Answer, Identity, IssuedToken, Role, SessionView, TokenView
from deadletter.core.errors import ConfigError, Conflict, DeadLetterError, NotFound
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.server.auth.guards import needs
from deadletter.server.auth.keys import is_provided, issued, view
from deadletter.server.auth.routes import keys
from deadletter.server.auth.sessions import sessions
from deadletter.server.auth.token_rules import check_may_issue
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import About, done, is_partial, render_page, render_part
from deadletter.server.console.problems import sentence
from deadletter.server.context import Here, ServerContext, Who

from .access import MAY, current_session, sees_words

_ADMIN: Final = [needs(Role.ADMIN)]
_READER: Final = [needs(Role.READER)]
_MOST: Final = 60  # mailboxes to choose from by boxes; others can be written
_FORM_LASTS: Final = timedelta(hours=24)  # in which a form is sent once only

Lasts: TypeAlias = Literal["1", "7", "30", "90", "365", "never"]
LASTS: Final[dict[Lasts, str]] = {
    "1": "1 day",
    "7": "7 days",
    "30": "30 days",
    "90": "90 days",
    "365": "1 year",
    "never": "never",
}
"""How long a token may last, in days and in words."""


class TokenForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of a new token."""

    key: str  # made by the server: the form is sent once only
    name: str = ""
    role: Role = Role.READER
    source: tuple[str, ...] = ()
    others: str = ""  # more mailboxes, with commas
    lasts: Lasts = "30"
    reason: str = ""


class ReasonForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A form with a reason only."""

    reason: str = ""


class NewTokenPage(Struct, frozen=True, kw_only=True):
    """The form of a new token, as it was filled in."""

    form: TokenForm
    sources: tuple[str, ...]  # to choose from
    roles: tuple[tuple[str, str], ...]
    lasts: tuple[tuple[str, str], ...]
    prefix: str  # with which the name must begin
    problem: str = ""


class ShownTokenPage(Struct, frozen=True, kw_only=True):
    """A new token, shown this once."""

    token: IssuedToken
    sees: str


class RevokePage(Struct, frozen=True, kw_only=True):
    """A token to revoke, and the number of sessions that end with it."""

    token: TokenView
    sees: str
    sessions: int
    is_own: bool
    is_provided: bool


class EndSessionPage(Struct, frozen=True, kw_only=True):
    """A session to end."""

    session: SessionView


@get("/tokens/dialog", guards=_ADMIN, include_in_schema=False)
async def ask_token(request: Request[Any, Any, Any], context: Here, who: Who) -> Response[bytes]:
    """Ask for what a new token needs."""
    keys(context)  # a conflict if access is off
    form = TokenForm(key=context.dice.new_id())
    return await _asked(request, await _new_token(context, who, form))


@post("/tokens", guards=_ADMIN, include_in_schema=False, request_max_body_size=LARGEST)
async def create_token(request: Request[Any, Any, Any], context: Here, who: Who) -> Response[bytes]:
    """Create a token and show it, this once. A wrong form comes back as it was filled in."""
    form = await read_form(request, TokenForm)
    try:
        token = await _issue(context, who, form)
    except (ConfigError, Conflict, PermissionDeniedException) as error:
        text = error.detail if isinstance(error, PermissionDeniedException) else str(error)
        page = structs.replace(await _new_token(context, who, form), problem=sentence(text))
        return await _asked(request, page, status=409 if isinstance(error, Conflict) else 400)
    shown = ShownTokenPage(token=token, sees=sees_words(token.sources))
    if is_partial(request):
        return render_part(request, "running/parts/shown_token.html", shown)
    about = About(title="New token", screen="access")
    return await render_page(request, "running/shown_token.html", shown, about)


@get("/tokens/{id:str}/revoke/dialog", guards=_ADMIN, include_in_schema=False)
async def ask_revoke(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
) -> Response[bytes]:
    """Ask whether to revoke a token; says how many sessions end with it."""
    token = next((one for one in await keys(context).list(who) if one.id == id), None)
    if token is None:
        raise NotFound(f"there is no token {id}")
    opened = [one for one in await sessions(context).list(who) if one.token_id == id]
    page = RevokePage(
        token=view(token),
        sees=sees_words(token.to.sources),
        sessions=len(opened),
        is_own=token.to.principal == who.principal,
        is_provided=is_provided(id),
    )
    return await _dialog(request, "revoke_token", page, "Revoke a token")


@post(
    "/tokens/{id:str}/revoke",
    guards=_ADMIN,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def revoke_token(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
) -> Response[bytes]:
    """Revoke a token and its sessions."""
    form = await read_form(request, ReasonForm)
    if not form.reason.strip():
        raise ConfigError("revoking a token needs a reason: it goes into the audit")
    opened = [one for one in await sessions(context).list(who) if one.token_id == id]
    token = await keys(context).revoke(id, By(who.name, form.reason), seen_by=who)
    ended = f" {many(len(opened), 'session')} ended with it." if opened else ""
    text = f"Token {id} of {token.to.name} is revoked.{ended}"
    return done(request, Notice(text=text), to="/access")


@get("/sessions/{id:str}/end/dialog", guards=_READER, include_in_schema=False)
async def ask_end(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
) -> Response[bytes]:
    """Ask whether to end a session."""
    current = await current_session(request)
    found = await sessions(context).list(who, current=current)
    session = next((one for one in found if one.id == id), None)
    if session is None:
        raise NotFound(f"there is no session {id}: it may have ended already")
    return await _dialog(request, "end_session", EndSessionPage(session=session), "End a session")


@post(
    "/sessions/{id:str}/end",
    guards=_READER,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def end_one_session(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
) -> Response[bytes]:
    """End a session of one's own; administrators also those of others."""
    form = await read_form(request, ReasonForm)
    rows = await sessions(context).list(who, current=await current_session(request))
    if any(row.current and row.id == id for row in rows):
        raise Conflict("this is the session that you use: sign out instead")
    ended = await sessions(context).end(id, By(who.name, form.reason), seen_by=who)
    to = "/access" if who.may(Role.ADMIN) else "/sessions"
    text = f"The session of {ended.name} has ended, on all servers."
    return done(request, Notice(text=text), to=to)


async def _issue(context: ServerContext, who: Identity, form: TokenForm) -> IssuedToken:
    tokens, access = keys(context), context.access
    assert access is not None  # or keys() had raised
    sources = (*form.source, *(one.strip() for one in form.others.split(",") if one.strip()))
    to = Identity(name=form.name, role=form.role, sources=tuple(dict.fromkeys(sources)))
    check_may_issue(who, to)
    now = context.clock.now()
    expires_at = None if form.lasts == "never" else now + timedelta(days=int(form.lasts))
    once = Answer(
        key=f"form:{who.principal}:{form.key[:64]}", request="token", expires_at=now + _FORM_LASTS
    )
    if await access.begin_answer(once) is not None:
        raise Conflict(
            "this form was sent before, and its token was shown then: if nobody kept it,"
            " revoke it, and open a new form"
        )
    try:
        token, shown = await tokens.issue(to, By(who.name, form.reason), expires_at=expires_at)
    except DeadLetterError:
        await access.drop_answer(once.key)
        raise
    return issued(token, shown)


async def _new_token(context: ServerContext, who: Identity, form: TokenForm) -> NewTokenPage:
    known = {*await context.store.counts(), *form.source}
    known |= {queue.options.name for queue in await context.office.mailboxes.list()}
    return NewTokenPage(
        form=form,
        sources=tuple(sorted(name for name in known if who.sees(name))[:_MOST]),
        roles=tuple((role.value, MAY[role]) for role in Role),
        lasts=tuple(LASTS.items()),
        prefix=f"{who.name}/" if who.sources else "",
    )


async def _asked(
    request: Request[Any, Any, Any], page: NewTokenPage, status: int = 200
) -> Response[bytes]:
    return await _dialog(request, "new_token", page, "New token", status)


async def _dialog(
    request: Request[Any, Any, Any], name: str, page: Struct, title: str, status: int = 200
) -> Response[bytes]:
    """Answer with a dialog for scripts, and with a page of the same form without them."""
    if is_partial(request):
        return render_part(request, f"running/parts/{name}.html", page, status=status)
    answer = await render_page(
        request, f"running/{name}.html", page, About(title=title, screen="access")
    )
    answer.status_code = status
    return answer


routes: Final[list[Any]] = [
    *(ask_token, create_token, ask_revoke, revoke_token),
    *(ask_end, end_one_session),
]
