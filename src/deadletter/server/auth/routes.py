"""Routes of access: sign in and out; create, list and revoke tokens."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException, PermissionDeniedException
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Identity, IssuedToken, Role, Session, Token, TokenView
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.idempotency import SHOWN_ONCE, middleware, seen_before

from .authenticator import cookie_name, is_https, unknown
from .guards import authenticator, caller, needs
from .hosts import Connection
from .keys import Keys, covers, issued, new_secret, session_hash, target, view

_ANYBODY: Final = [needs(Role.READER)]
_LARGEST: Final = 128 * 1024  # bytes that are read of somebody who is not known yet


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """The token of somebody who signs in."""

    token: Annotated[str, Meta(examples=["dlq_0f3a9c51d2_…"])]


class Whoami(Struct, frozen=True, kw_only=True):
    """Name, role and mailboxes of the caller."""

    name: str
    role: Role
    sources: tuple[str, ...]  # sees only these mailboxes; empty: all
    csrf: str | None = None  # to be sent as X-CSRF-Token with every change
    expires_at: datetime | None = None  # when the session is over


@post("/session", operation_id="sign_in", request_max_body_size=_LARGEST)
async def sign_in(
    request: Request[Any, Any, Any], context: Here, data: JSONBody[SignIn]
) -> Response[Whoami]:
    """
    Show a token, get a session.

    The session comes as a cookie that scripts cannot read. Changes made with it need
    its `csrf` in the header X-CSRF-Token.
    """
    if context.access is None:
        raise Conflict("access is off: nobody has to sign in")
    if request.content_type[0] != "application/json":
        # A form on somebody else's page can send text, but not call it this.
        raise HTTPException("send application/json", status_code=415)
    token = await authenticator(request).sign_in(request, data.token, context.store)
    shown, session = _session(token, context)
    try:
        await context.access.open_session(session)
    except NotFound:  # revoked in between
        raise unknown() from None
    await context.store.record("sign-in", target(token.id), By(token.to.name))
    # Whatever session the browser brought along is not continued.
    if old := request.cookies.get(cookie_name(request)):
        await context.access.close_session(session_hash(old))
    lasts = session.expires_at - session.created_at
    return Response(
        _whoami(token.to, session),
        cookies=[_cookie(request, shown, max_age=int(lasts.total_seconds()))],
    )


@get("/session", guards=_ANYBODY, operation_id="get_session")
async def get_session(request: Request[Any, Any, Any]) -> Whoami:
    """Return name, role and mailboxes of the caller."""
    known = await caller(request)
    return _whoami(known.who, known.session)


@delete("/session", guards=_ANYBODY, operation_id="sign_out", status_code=204)
async def sign_out(request: Request[Any, Any, Any], context: Here) -> Response[None]:
    """End the session; with a token there is none, and nothing happens."""
    known = await caller(request)
    if context.access is not None and known.session is not None:
        await context.access.close_session(known.session.hash)
        by = By(known.who.name)
        await context.store.record("sign-out", target(known.session.token_id), by)
    return Response(None, cookies=[_cookie(request, "", max_age=0)])


def _session(token: Token, context: ServerContext) -> tuple[str, Session]:
    now, shown = context.clock.now(), new_secret()
    ends = now + timedelta(hours=context.settings.serve.session_hours)
    session = Session(
        hash=session_hash(shown),
        to=token.to,
        token_id=token.id,
        csrf=new_secret(),
        created_at=now,
        expires_at=min(ends, token.expires_at or ends),
    )
    return shown, session


def _whoami(who: Identity, session: Session | None) -> Whoami:
    return Whoami(
        name=who.name,
        role=who.role,
        sources=who.sources,
        csrf=session.csrf if session else None,
        expires_at=session.expires_at if session else None,
    )


def _cookie(connection: Connection, value: str, *, max_age: int) -> Cookie:
    return Cookie(
        key=cookie_name(connection),
        value=value,
        max_age=max_age,
        httponly=True,
        secure=is_https(connection),
        # Links in alerts lead here: lax lets those arrive signed in, and no more.
        samesite="lax",
    )


_ADMIN: Final = [needs(Role.ADMIN)]

_Id: TypeAlias = Annotated[
    str, PathParameter(max_length=16, description="The part between the underscores.")
]
_Reason: TypeAlias = Annotated[
    str, QueryParameter(max_length=1000, description="Why; goes into the audit.")
]


class NewToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a new token."""

    name: Annotated[str, Meta(min_length=1, max_length=200, examples=["ci"])]
    role: Role = Role.READER
    sources: tuple[str, ...] = ()  # may see only these mailboxes; empty: all
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""


@get("/tokens", guards=_ADMIN, operation_id="list_tokens")
async def list_tokens(context: Here, who: Who) -> list[TokenView]:
    """The tokens there are, by name and all at once; never what they are known by."""
    return [view(token) for token in await keys(context).list(who)]


def _made_before(answered: bytes) -> Conflict:
    made = msgspec.json.decode(answered, type=TokenView)
    return Conflict(
        f"token {made.id} was made with this key, and a token is shown once only: if"
        " nobody has it, revoke it and make another with a new key"
    )


@post(
    "/tokens",
    guards=_ADMIN,
    operation_id="issue_token",
    before_request=seen_before,
    middleware=[middleware],
    opt={SHOWN_ONCE: _made_before},
)
async def issue_token(context: Here, who: Who, data: JSONBody[NewToken]) -> Response[IssuedToken]:
    """
    Make a token. It is shown in this answer and never again.

    An `Idempotency-Key` makes sure that it is made once. The secret is not kept for
    that: the same request again is a conflict, which names the token.

    Nobody can make one that sees more mailboxes than they do, and who is limited to
    some names it after themselves: `mail-team` makes `mail-team/ci`.
    """
    to = Identity(name=data.name, role=data.role, sources=data.sources)
    if who.sources and not f"{data.name}/".startswith(f"{who.name}/"):
        raise PermissionDeniedException(
            f"names that you hand out begin with your own: {who.name}/{data.name}"
        )
    if not covers(who, to):
        raise PermissionDeniedException(
            f"you see only {', '.join(who.sources)}: name mailboxes among these"
        )
    by = By(who.name, data.reason)
    token, shown = await keys(context).issue(to, by, expires_at=data.expires_at)
    return Response(issued(token, shown))


@delete("/tokens/{id:str}", guards=_ADMIN, operation_id="revoke_token")
async def revoke_token(context: Here, who: Who, id: _Id, reason: _Reason = "") -> None:
    """End a token and every session opened with it, everywhere, at once."""
    await keys(context).revoke(id, By(who.name, reason), seen_by=who)


def keys(context: ServerContext) -> Keys:
    """The tokens of this place; with access off there are none."""
    if context.access is None:
        raise Conflict("access is off: there are no tokens here")
    return Keys(context.access, context.store, context.clock)


routes: Final[list[Any]] = [
    *(sign_in, get_session, sign_out),
    *(list_tokens, issue_token, revoke_token),
]
