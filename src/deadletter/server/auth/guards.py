"""
Guards: the role that each route needs.

Every route names the role it needs, `guards=[needs(Role.READER)]`, or is listed in
`OPEN`. A route gets the caller as `who: Who`, see `dependencies`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cache
from typing import Any, Final, Protocol

from litestar import Request
from litestar.di import Provide
from litestar.exceptions import HTTPException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.campaign import Campaign
from deadletter.core.errors import BackendError, Conflict, DeadLetterError
from deadletter.office.replay_sender import Denied
from deadletter.ports import AccessStore, Clock

from .authenticator import Authenticator, Caller, has_csrf_token
from .hosts import Connection, reject_cross_site

OPEN: Final = frozenset(
    {
        ("GET", "/health"),
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/metrics"),  # the route checks tokens itself, see server.health
        ("GET", "/api/openapi.json"),
        ("POST", "/api/v1/session"),
        ("GET", "/static/{digest}/{name}"),
        ("GET", "/sign-in"),
        ("POST", "/sign-in"),
        ("GET", "/sign-in/start"),
        ("GET", "/sign-in/callback"),
    }
)
"""Method and path of the routes that need no token."""
WHO: Final = "who"
_PIECE: Final = 64 * 1024  # bytes of a long answer


class AccessLost(Exception):
    """The caller lost access during an answer, which ends incomplete."""


class Needs(Struct, frozen=True):
    """A guard that admits callers with this role or a higher one."""

    role: Role
    recorded: bool = False

    async def __call__(self, connection: Connection, _: BaseRouteHandler) -> None:
        """Raise 401 for an unknown caller, 403 for one without the role."""
        await admit(connection, self.role)
        if self.recorded:
            known = await caller(connection)
            if known.session is not None:
                reject_cross_site(connection, has_csrf_token(connection, known.session))
            elif authenticator(connection).access is None:
                reject_cross_site(connection, has_proof=True)


@cache
def needs(role: Role, *, recorded: bool = False) -> Needs:
    """
    Return the guard of a route for `role` and above.

    A GET that is `recorded` in the audit rejects requests that other sites start in a
    browser.
    """
    return Needs(role, recorded)


async def admit(connection: Connection, role: Role) -> Identity:
    """
    Return the caller; raise 403 if the caller does not have this role.

    The caller is determined once for each request.
    """
    who = (await caller(connection)).who
    check_role(who, role)
    return who


def check_role(who: Identity, role: Role) -> None:
    """Raise 403 if the caller does not have this role."""
    if not who.may(role):
        raise PermissionDeniedException(f"this requires the role {role}, and you have {who.role}")


async def caller(connection: Connection) -> Caller:
    """Return the caller and its session."""
    known = connection.scope.get("auth")
    if not isinstance(known, Caller):
        known = await authenticator(connection).caller(connection)
        connection.scope["auth"], connection.scope["user"] = known, known.who
        # The access log sees the state even if the scope is a copy.
        connection.scope["state"][WHO] = known.who
    return known


async def has_access(connection: Connection) -> bool:
    """
    Return whether the caller still has access, for long answers.

    False if the store is unavailable: the caller can send the request again.
    """
    before = await caller(connection)
    try:
        return (await authenticator(connection).caller(connection)).who == before.who
    except (HTTPException, BackendError):
        return False


async def while_authorized(
    connection: Connection, parts: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """
    Yield the parts of a long answer; raise AccessLost when the caller loses access.

    The error ends the connection, so that the client notices that the answer is
    incomplete.
    """
    revoked = asyncio.Event()
    known = await caller(connection)
    with authenticator(connection).watching(known, revoked.set):
        async for part in parts:
            if not await has_access(connection):
                raise AccessLost("the caller lost access")
            # In small pieces, because a client may read slowly.
            for start in range(0, len(part), _PIECE):
                if revoked.is_set():
                    raise AccessLost("the caller lost access")
                yield part[start : start + _PIECE]


def authenticator(connection: Connection) -> Authenticator:
    """Return the authenticator of this server, created with the first request."""
    state = connection.app.state
    if "authenticator" not in state:
        context = state.context
        state.authenticator = Authenticator(context.access, context.clock, context.codes)
    known: Authenticator = state.authenticator
    return known


async def _who(request: Request[Any, Any, Any]) -> Identity:
    return (await caller(request)).who


dependencies: Final = {"who": Provide(_who)}
"""Dependencies that routes can name as parameters."""


# Access to mailboxes and queues, with the same rules for /api/v1 and /v1. A caller who is
# limited to some mailboxes cannot use others, send anything there, or delete what other
# callers use. A mailbox that the caller may not see is answered like a missing one.


class Connected(Protocol):
    """A mailbox or lease queue, and its dead queue."""

    @property
    def name(self) -> str: ...
    @property
    def dead_queue(self) -> str | None: ...


def check_seen(who: Identity, mailbox: str, missing: Callable[[str], DeadLetterError]) -> None:
    """Raise the error of a missing mailbox if the caller may not see it."""
    if not who.sees(mailbox):
        raise missing(mailbox)


async def check_uses(
    who: Identity,
    mailbox: str,
    list_all: Callable[[], Awaitable[Iterable[Connected]]],
    *,
    leads_to: str | None = None,
) -> None:
    """
    Raise Conflict for a change that affects mailboxes the caller may not see.

    For example, the mailbox is the dead queue of such a mailbox; or the new dead queue
    (`leads_to`) has such a mailbox as its own dead queue.
    """
    if not who.sources:
        return
    for other in await list_all():
        if other.dead_queue == mailbox and not who.sees(other.name):
            raise Conflict(
                f"{mailbox} is the dead queue of a mailbox that your token does not see:"
                " use a token that sees all mailboxes"
            )
        if other.name == leads_to and not _sees(who, other.dead_queue):
            raise Conflict(
                f"{leads_to} has a dead queue that your token does not see, and a dead"
                " queue must not have one of its own: choose another one"
            )


def _sees(who: Identity, mailbox: str | None) -> bool:
    return mailbox is None or who.sees(mailbox)


def replay_rights(access: AccessStore | None, clock: Clock) -> Denied:
    """
    Return a function that says why a replay may no longer be sent; None if it may.

    A replay that was not started with a token, but by the command or by a server
    without access control, may always be sent.
    """

    async def denied(campaign: Campaign) -> str | None:
        if access is None or not campaign.runs_as:
            return None
        for token in await access.tokens():
            if token.to.principal == campaign.runs_as:
                break
        else:
            return "the token that started it was revoked"
        if token.is_over(clock.now()):
            return "the token that started it has expired"
        if not token.to.may(Role.OPERATOR):
            return "the token that started it may not replay"
        if campaign.to is not None and not token.to.sees(campaign.to):
            return "the token that started it may not replay to that mailbox"
        return None

    return denied
