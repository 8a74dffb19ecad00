"""Routes of access: sign in and out; list and end sessions; create, list and revoke tokens."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Identity, IssuedToken, Role, Session, SessionView, TokenView
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.idempotency import SHOWN_ONCE, middleware, replayed_answer

from .guards import authenticator, caller, needs
from .keys import Keys, issued, view
from .sessions import end_session, open_session, sessions
from .token_rules import check_may_issue

_ANYBODY: Final = [needs(Role.READER)]
_LARGEST: Final = 128 * 1024  # bytes of a sign-in, because the caller is still unknown


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to sign in with."""

    token: Annotated[str, Meta(examples=["dlq_0f3a9c51d2_…"])]


class Whoami(Struct, frozen=True, kw_only=True):
    """Name, role and mailboxes of the caller."""

    name: str
    role: Role
    sources: tuple[str, ...]  # sees only these mailboxes; empty: all
    csrf: str | None = None  # to be sent as X-CSRF-Token with every change
    expires_at: datetime | None = None  # of the session


@post("/session", operation_id="sign_in", request_max_body_size=_LARGEST)
async def sign_in(
    request: Request[Any, Any, Any], context: Here, data: JSONBody[SignIn]
) -> Response[Whoami]:
    """
    Sign in with a token and get a session.

    The session is a cookie that scripts cannot read. Changes with a session need its
    `csrf` in the header X-CSRF-Token.
    """
    if context.access is None:
        raise Conflict("access is off: no sign-in is needed")
    if request.content_type[0] != "application/json":
        # A form of another site cannot send this content type.
        raise HTTPException("the content type must be application/json", status_code=415)
    token = await authenticator(request).sign_in(request, data.token, context.store)
    session, cookie = await open_session(request, context, token)
    return Response(_whoami(token.to, session), cookies=[cookie])


@get("/session", guards=_ANYBODY, operation_id="get_session")
async def get_session(request: Request[Any, Any, Any]) -> Whoami:
    """Return name, role and mailboxes of the caller."""
    known = await caller(request)
    return _whoami(known.who, known.session)


@delete("/session", guards=_ANYBODY, operation_id="sign_out", status_code=204)
async def sign_out(request: Request[Any, Any, Any], context: Here) -> Response[None]:
    """End the session. Does nothing for a caller with a token."""
    cookie = await end_session(request, context, await caller(request))
    return Response(None, cookies=[cookie])


def _whoami(who: Identity, session: Session | None) -> Whoami:
    return Whoami(
        name=who.name,
        role=who.role,
        sources=who.sources,
        csrf=session.csrf if session else None,
        expires_at=session.expires_at if session else None,
    )


_ADMIN: Final = [needs(Role.ADMIN)]

_Id: TypeAlias = Annotated[
    str, PathParameter(max_length=16, description="The part between the underscores.")
]
_SessionId: TypeAlias = Annotated[
    str, PathParameter(max_length=16, description="The id in the list of sessions.")
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
    """Return all tokens by name, without their secrets."""
    return [view(token) for token in await keys(context).list(who)]


def _created_before(answer: bytes) -> Conflict:
    token = msgspec.json.decode(answer, type=TokenView)
    return Conflict(
        f"token {token.id} was created with this idempotency key, and its secret is shown"
        " only once: if you do not have it, revoke the token and create another one with"
        " a new key"
    )


@post(
    "/tokens",
    guards=_ADMIN,
    operation_id="issue_token",
    before_request=replayed_answer,
    middleware=[middleware],
    opt={SHOWN_ONCE: _created_before},
)
async def issue_token(context: Here, who: Who, data: JSONBody[NewToken]) -> Response[IssuedToken]:
    """
    Create a token. Its secret is in this answer and is never shown again.

    With an `Idempotency-Key` it is created only once. The secret is not stored: the same
    request again is a conflict that names the token.

    A token cannot see more mailboxes than its creator. A creator who is limited to some
    mailboxes uses its own name as a prefix: `mail-team` creates `mail-team/ci`.
    """
    to = Identity(name=data.name, role=data.role, sources=data.sources)
    check_may_issue(who, to)
    by = By(who.name, data.reason)
    token, shown = await keys(context).issue(to, by, expires_at=data.expires_at)
    return Response(issued(token, shown))


@delete("/tokens/{id:str}", guards=_ADMIN, operation_id="revoke_token")
async def revoke_token(context: Here, who: Who, id: _Id, reason: _Reason = "") -> None:
    """Revoke a token and its sessions on all servers immediately."""
    await keys(context).revoke(id, By(who.name, reason), seen_by=who)


@get("/sessions", guards=_ANYBODY, operation_id="list_sessions")
async def get_sessions(request: Request[Any, Any, Any], context: Here) -> list[SessionView]:
    """
    Return sessions, latest first: your own; to an administrator, all.

    A session is your own if it was opened with the token that you use.
    """
    known = await caller(request)
    current = known.session.hash if known.session else ""
    return list(await sessions(context).list(known.who, current=current))


@delete("/sessions/{id:str}", guards=_ANYBODY, operation_id="end_session")
async def delete_session(context: Here, who: Who, id: _SessionId, reason: _Reason = "") -> None:
    """End one of the sessions that you can list, on all servers immediately."""
    await sessions(context).end(id, By(who.name, reason), seen_by=who)


def keys(context: ServerContext) -> Keys:
    """Return the tokens of this office; raise Conflict if access is off."""
    if context.access is None:
        raise Conflict("access is off: there are no tokens here")
    return Keys(context.access, context.store, context.clock)


routes: Final[list[Any]] = [
    *(sign_in, get_session, sign_out, get_sessions, delete_session),
    *(list_tokens, issue_token, revoke_token),
]
