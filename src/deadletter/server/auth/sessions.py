"""Sessions: opened with a token, listed and ended by their owner or an administrator."""

from datetime import timedelta

from litestar.datastructures import Cookie

from deadletter.core.access import Session, Token
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.server.context import ServerContext

from .authenticator import Caller, cookie_name, is_https, unauthenticated
from .hosts import Connection
from .keys import new_secret, session_hash, target
from .session_list import Sessions


async def open_session(
    connection: Connection, context: ServerContext, token: Token, *, hours: float | None = None
) -> tuple[Session, Cookie]:
    """
    Open a session; return it with the cookie of its browser.

    An earlier session of the browser ends. It lasts `serve.session_hours`, or fewer `hours`,
    and never longer than its token. Raises 401 if the token was revoked meanwhile.
    """
    if context.access is None:
        raise Conflict("access is off: no sign-in is needed")
    now, shown = context.clock.now(), new_secret()
    longest = context.settings.serve.session_hours
    ends = now + timedelta(hours=longest if hours is None else min(hours, longest))
    session = Session(
        hash=session_hash(shown),
        to=token.to,
        token_id=token.id,
        csrf=new_secret(),
        created_at=now,
        expires_at=min(ends, token.expires_at or ends),
    )
    try:
        await context.access.open_session(session)
    except NotFound:  # revoked in the meantime
        raise unauthenticated() from None
    await context.store.record("sign-in", target(token.id), By(token.to.name))
    if old := connection.cookies.get(cookie_name(connection)):
        await context.access.close_session(session_hash(old))
    lasts = int((session.expires_at - now).total_seconds())
    return session, _cookie(connection, shown, max_age=lasts)


async def end_session(connection: Connection, context: ServerContext, known: Caller) -> Cookie:
    """End the caller's session, if any; return the cookie that removes it from the browser."""
    if context.access is not None and known.session is not None:
        await context.access.close_session(known.session.hash)
        by = By(known.who.name)
        await context.store.record("sign-out", target(known.session.token_id), by)
    return _cookie(connection, "", max_age=0)


def sessions(context: ServerContext) -> Sessions:
    """Return the sessions of this office; raise Conflict if access is off."""
    if context.access is None:
        raise Conflict("access is off: there are no sessions here")
    return Sessions(context.access, context.store)


def _cookie(connection: Connection, value: str, *, max_age: int) -> Cookie:
    return Cookie(
        key=cookie_name(connection),
        value=value,
        max_age=max_age,
        httponly=True,
        secure=is_https(connection),
        # Links in alerts open pages here: lax sends the cookie with those links only.
        samesite="lax",
    )
