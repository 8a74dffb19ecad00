"""
Guards: the role that each route needs.

Every route names the role it needs, `guards=[needs(Role.READER)]`, or stands in
`OPEN`. Inside a route `who: Pass` is the caller, see `dependencies`.
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

from .authenticator import Authenticator, Caller, shows_proof
from .hosts import Connection, refuse_being_sent

OPEN: Final = frozenset(
    {
        ("GET", "/health"),
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/metrics"),  # which looks at tokens itself, see web.metrics
        ("GET", "/api/openapi.json"),
        ("POST", "/api/v1/session"),
    }
)
"""Method and path of what anybody may ask for."""
WHO: Final = "who"
_PIECE: Final = 64 * 1024  # bytes of a long answer


class CutShort(Exception):
    """An answer that had begun ends here, and is not whole."""


class Needs(Struct, frozen=True):
    """A guard that lets in who has this role, or one above it."""

    role: Role
    recorded: bool = False

    async def __call__(self, connection: Connection, _: BaseRouteHandler) -> None:
        """401 for somebody unknown, 403 for somebody who may not."""
        await admit(connection, self.role)
        if self.recorded:
            known = await caller(connection)
            if known.session is not None:
                refuse_being_sent(connection, shows_proof(connection, known.session))
            elif authenticator(connection).access is None:
                refuse_being_sent(connection, proof=True)


@cache
def needs(role: Role, *, recorded: bool = False) -> Needs:
    """
    The guard of a route for `role` and above.

    A GET that is `recorded` in the audit is not for browsers that other sites sent.
    """
    return Needs(role, recorded)


async def admit(connection: Connection, role: Role) -> Identity:
    """
    The caller, if they have this role; for what is not a route of its own.

    Asking again costs nothing: each request finds out once who it comes from.
    """
    who = (await caller(connection)).who
    if not who.may(role):
        raise PermissionDeniedException(f"this needs the role {role}, not {who.role}")
    return who


async def caller(connection: Connection) -> Caller:
    """Return the caller and its session."""
    known = connection.scope.get("auth")
    if not isinstance(known, Caller):
        known = await authenticator(connection).caller(connection)
        connection.scope["auth"], connection.scope["user"] = known, known.who
        # The log of requests sees this one also where the scope is a copy.
        connection.scope["state"][WHO] = known.who
    return known


async def is_still_known(connection: Connection) -> bool:
    """
    Return whether the caller still has access, for long answers.

    Not if the store cannot tell: they may ask anew.
    """
    before = await caller(connection)
    try:
        return (await authenticator(connection).caller(connection)).who == before.who
    except (HTTPException, BackendError):
        return False


async def while_known(connection: Connection, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """
    The parts of a long answer, for as long as who asked would be let in again.

    What is cut short ends with an error, so that nobody takes it for the whole.
    """
    gone = asyncio.Event()
    known = await caller(connection)
    with authenticator(connection).watching(known, gone.set):
        async for part in parts:
            if not await is_still_known(connection):
                raise _cut_short()
            # A client that reads slowly is sent no more than little at a time.
            for start in range(0, len(part), _PIECE):
                if gone.is_set():
                    raise _cut_short()
                yield part[start : start + _PIECE]


def _cut_short() -> CutShort:
    return CutShort("whoever asked for this is let in no more")


def authenticator(connection: Connection) -> Authenticator:
    """The door of this server: made with the first request, kept in its state."""
    state = connection.app.state
    if "authenticator" not in state:
        state.authenticator = Authenticator(state.context.access, state.context.clock)
    known: Authenticator = state.authenticator
    return known


async def _who(request: Request[Any, Any, Any]) -> Identity:
    return (await caller(request)).who


dependencies: Final = {"who": Provide(_who)}
"""For the app: what routes may ask for by name."""


# Which mailboxes and queues are any of a caller's business.
# One rule for both surfaces, /api/v1 and /v1: whoever is limited to some mailboxes
# neither reaches others, nor leads anything there, nor takes away what others use. What
# they may not see is answered as what is not there, and named nowhere.


class Connected(Protocol):
    """A mailbox or lease queue, and where what dies in it goes."""

    @property
    def name(self) -> str: ...
    @property
    def dead_queue(self) -> str | None: ...


def check_seen(who: Identity, mailbox: str, missing: Callable[[str], DeadLetterError]) -> None:
    """Refuse a mailbox that somebody may not see, as one that is not there."""
    if not who.sees(mailbox):
        raise missing(mailbox)


async def check_uses(
    who: Identity,
    mailbox: str,
    there: Callable[[], Awaitable[Iterable[Connected]]],
    *,
    leads_to: str | None = None,
) -> None:
    """
    Refuse a change that touches how mailboxes of others are connected.

    That is: to delete the dead queue of one, to make it have a dead queue or an end of
    its own, or to lead dead messages (`leads_to`) where they would be led on.
    """
    if not who.sources:
        return
    for other in await there():
        if other.dead_queue == mailbox and not who.sees(other.name):
            raise Conflict(
                f"{mailbox} is the dead queue of a mailbox that is none of yours: ask"
                " somebody who sees all of them"
            )
        if other.name == leads_to and not _sees(who, other.dead_queue):
            raise Conflict(
                f"{leads_to} has a dead queue that is none of yours, and a dead queue"
                " cannot have its own: choose another one"
            )


def _sees(who: Identity, mailbox: str | None) -> bool:
    return mailbox is None or who.sees(mailbox)


def replay_rights(access: AccessStore | None, clock: Clock) -> Denied:
    """
    Say why a replay may not be sent any more; None while it may.

    One that no token let run, but the command or a server without access, may be sent.
    """

    async def denied(campaign: Campaign) -> str | None:
        if access is None or not campaign.runs_as:
            return None
        for token in await access.tokens():
            if token.to.principal == campaign.runs_as:
                break
        else:
            return "the token that let it run was revoked"
        if token.is_over(clock.now()):
            return "the token that let it run has expired"
        if not token.to.may(Role.OPERATOR):
            return "the token that let it run may not replay"
        if campaign.to is not None and not token.to.sees(campaign.to):
            return "the token that let it run may not replay to that mailbox"
        return None

    return denied
