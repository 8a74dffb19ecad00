"""Signing in and out: a session for those who come with a browser."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException
from litestar.params import JSONBody
from msgspec import Meta, Struct

from deadletter.core.access import Pass, Role, Session, Token
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.server.context import Here, Place

from .door import cookie_name, is_https, unknown
from .guards import caller, door, needs
from .hosts import Connection
from .keys import new_secret, session_hash, target

_ANYBODY: Final = [needs(Role.READER)]
_LARGEST: Final = 128 * 1024  # bytes that are read of somebody who is not known yet


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Who wants to sign in."""

    token: Annotated[str, Meta(examples=["dlq_0f3a9c51d2_…"])]


class Whoami(Struct, frozen=True, kw_only=True):
    """Who one is here, and what one may do."""

    name: str
    role: Role
    sources: tuple[str, ...]  # sees only these mailboxes; empty: all
    csrf: str | None = None  # to be sent as X-CSRF-Token with every change
    expires_at: datetime | None = None  # when the session is over


@post("/session", operation_id="sign_in", request_max_body_size=_LARGEST)
async def sign_in(
    request: Request[Any, Any, Any], place: Here, data: JSONBody[SignIn]
) -> Response[Whoami]:
    """
    Show a token, get a session.

    The session comes as a cookie that scripts cannot read. Changes made with it need
    its `csrf` in the header X-CSRF-Token.
    """
    if place.access is None:
        raise Conflict("access is off: nobody has to sign in")
    if request.content_type[0] != "application/json":
        # A form on somebody else's page can send text, but not call it this.
        raise HTTPException("send application/json", status_code=415)
    token = await door(request).sign_in(request, data.token, place.store)
    shown, session = _session(token, place)
    try:
        await place.access.open_session(session)
    except NotFound:  # revoked in between
        raise unknown() from None
    await place.store.record("sign-in", target(token.id), By(token.to.name))
    # Whatever session the browser brought along is not continued.
    if old := request.cookies.get(cookie_name(request)):
        await place.access.close_session(session_hash(old))
    lasts = session.expires_at - session.created_at
    return Response(
        _whoami(token.to, session),
        cookies=[_cookie(request, shown, max_age=int(lasts.total_seconds()))],
    )


@get("/session", guards=_ANYBODY, operation_id="get_session")
async def get_session(request: Request[Any, Any, Any]) -> Whoami:
    """Who I am, and what I may do."""
    known = await caller(request)
    return _whoami(known.who, known.session)


@delete("/session", guards=_ANYBODY, operation_id="sign_out", status_code=204)
async def sign_out(request: Request[Any, Any, Any], place: Here) -> Response[None]:
    """End the session; with a token there is none, and nothing happens."""
    known = await caller(request)
    if place.access is not None and known.session is not None:
        await place.access.close_session(known.session.hash)
        by = By(known.who.name)
        await place.store.record("sign-out", target(known.session.token_id), by)
    return Response(None, cookies=[_cookie(request, "", max_age=0)])


def _session(token: Token, place: Place) -> tuple[str, Session]:
    now, shown = place.clock.now(), new_secret()
    ends = now + timedelta(hours=place.settings.serve.session_hours)
    session = Session(
        hash=session_hash(shown),
        to=token.to,
        token_id=token.id,
        csrf=new_secret(),
        created_at=now,
        expires_at=min(ends, token.expires_at or ends),
    )
    return shown, session


def _whoami(who: Pass, session: Session | None) -> Whoami:
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


routes: Final[list[Any]] = [sign_in, get_session, sign_out]
