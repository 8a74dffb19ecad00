"""dlq tokens: create, list and revoke tokens of the server; list and end its sessions."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Protocol

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs
from rich.console import RenderableType
from rich.table import Table

from deadletter.core.access import Identity, IssuedToken, Role, SessionView, TokenView
from deadletter.core.errors import NotFound
from deadletter.core.letter import By
from deadletter.server.auth.keys import Keys, view
from deadletter.server.auth.keys import issued as issued_token
from deadletter.server.auth.session_list import Sessions
from deadletter.wiring.serving import serving_engine

from .desk import AtDesk, Desk
from .options import Reason, Several, Yes
from .ui import (
    NARROW,
    Name,
    ago,
    ask_to_confirm,
    cell,
    firm_column,
    name_column,
    table,
    text_column,
)

if TYPE_CHECKING:
    from deadletter.client import Client

app = App(
    name="tokens",
    help="Create, list and revoke the tokens of the server's callers; end their sessions.",
    help_format="markdown",
)


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the tokens. Their secrets are not stored."""
    async with opened_tokens(desk) as tokens:
        found = await tokens.list()
    if desk.as_json:
        for token in found:
            desk.document(token)
        return
    if not found:
        desk.tell("There are no tokens yet; `dlq tokens create NAME` creates one.")
        return
    desk.show(_table(found, desk.clock.now(), desk.out.width))


@app.command
async def create(
    name: str,
    /,
    *,
    role: Role = Role.READER,
    source: Several = (),
    days: Annotated[float | None, Parameter(validator=Number(gt=0, lte=36500))] = None,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Create a token and print it. It is not shown again.

    Args:
        name: The owner; the actor in the audit.
        role: A reader can look at everything; an operator can also review, edit,
            replay, produce and lease; an admin can also purge, change queues and
            create tokens.
        source: A mailbox that the token may see; can be repeated (default: all).
        days: Days until it expires (default: never).
        reason: Why; recorded in the audit.
    """
    to = Identity(name=name, role=role, sources=source)
    expires_at = desk.clock.now() + timedelta(days=days) if days else None
    async with opened_tokens(desk, make=True) as tokens:
        issued = await tokens.issue(to, desk.by(reason), expires_at=expires_at)
    if desk.as_json:
        desk.document(issued)
        return
    desk.tell(issued.token)
    desk.hint(f"Token {issued.id} for {name}, {role}. It is not shown again.")


@app.command
async def revoke(id: str, /, *, reason: Reason = "", yes: Yes = False, desk: AtDesk) -> None:
    """
    Revoke a token and its sessions on all servers immediately.

    Args:
        id: The id: the part of the token between the underscores.
        reason: Why; recorded in the audit.
        yes: Do not ask for confirmation.
    """
    async with opened_tokens(desk) as tokens:
        token = next((one for one in await tokens.list() if one.id == id), None)
        if token is None:
            raise NotFound(f"there is no token {id}: `dlq tokens` lists them")
        ask_to_confirm(desk, f"revoke token {id} of {token.name}", yes=yes)
        await tokens.revoke(id, desk.by(reason))
    if desk.as_json:
        desk.document(token)
    else:
        desk.tell(f"Token {id} of {token.name} is revoked.")


@app.command
async def sessions(*, desk: AtDesk) -> None:
    """List the sessions of the console that have not ended, latest first."""
    async with opened_tokens(desk) as tokens:
        found = await tokens.sessions()
    if desk.as_json:
        for session in found:
            desk.document(session)
        return
    if not found:
        desk.tell("Nobody is signed in.")
        return
    shown, now = table(), desk.clock.now()
    firm_column(shown, "id")
    name_column(shown, "name")
    for name in ("role", "since", "ends"):
        firm_column(shown, name)
    for one in found:
        since, ends = ago(one.created_at, now), ago(one.expires_at, now)
        shown.add_row(cell(one.id, "cyan"), Name(one.name), cell(one.role), cell(since), cell(ends))
    desk.show(shown)


@app.command
async def end_session(id: str, /, *, reason: Reason = "", desk: AtDesk) -> None:
    """
    End a session of the console on all servers immediately.

    Args:
        id: The id in the list of sessions.
        reason: Why; recorded in the audit.
    """
    async with opened_tokens(desk) as tokens:
        await tokens.end_session(id, desk.by(reason))
    if desk.as_json:
        desk.document({"ended": id})
    else:
        desk.tell(f"Session {id} has ended.")


def _table(tokens: Sequence[TokenView], now: datetime, width: int) -> Table:
    is_narrow = width < NARROW
    shown = table()
    firm_column(shown, "id")
    name_column(shown, "name")
    firm_column(shown, "role")
    text_column(shown, "sees")
    if not is_narrow:
        firm_column(shown, "created")
        firm_column(shown, "used")
    firm_column(shown, "expires")
    for token in tokens:
        expires, style = _end(token.expires_at, now)
        cells: list[RenderableType] = [
            cell(token.id, "cyan"),
            Name(token.name),
            cell(token.role),
            cell(", ".join(token.sources) or "all"),
        ]
        if not is_narrow:
            created, used = token.created_at, token.last_used_at
            cells += [cell(ago(created, now)), cell(_used(used, now))]
        shown.add_row(*cells, cell(expires, style))
    return shown


def _end(at: datetime | None, now: datetime) -> tuple[str, str]:
    if at is None:
        return "never", ""
    return ago(at, now), "red" if at <= now else ""


def _used(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "never"
    # The last use is recorded to the hour.
    return "within 1 h" if now - at < timedelta(hours=1) else ago(at, now)


class TokensProtocol(Protocol):
    """Tokens of a server: reached through the server, or in its store."""

    async def list(self) -> Sequence[TokenView]:
        """Return all tokens, by name."""

    async def issue(self, to: Identity, by: By, *, expires_at: datetime | None) -> IssuedToken:
        """Create a token and return it; its secret is not stored."""

    async def revoke(self, id: str, by: By) -> None:
        """Revoke a token and its sessions on all servers."""

    async def sessions(self) -> Sequence[SessionView]:
        """Return the sessions that have not ended, latest first."""

    async def end_session(self, id: str, by: By) -> None:
        """End a session on all servers."""


@asynccontextmanager
async def opened_tokens(desk: Desk, *, make: bool = False) -> AsyncIterator[TokensProtocol]:
    """Open the tokens of the named server, or those in the store of the settings."""
    if desk.server is not None:
        desk.name_office(f"on {desk.server}")
        async with desk.client(desk.server) as client:
            yield _RemoteTokens(client)
        return
    # Tokens can be managed while the server does not require them.
    serve = structs.replace(desk.settings.serve, access="on")
    async with serving_engine(
        structs.replace(desk.settings, serve=serve),
        url=desk.given_url,
        office=desk.given_office,
        clock=desk.clock,
        dice=desk.dice,
        make=make,
    ) as ground:
        desk.name_office(desk.office_of(ground.engine))
        assert ground.access is not None  # access is "on" above
        yield _LocalTokens(
            Keys(ground.access, ground.letters, desk.clock), Sessions(ground.access, ground.letters)
        )


class _LocalTokens:
    """Tokens in a store that is open in this process."""

    def __init__(self, keys: Keys, sessions: Sessions) -> None:
        self._keys = keys
        self._sessions = sessions

    async def list(self) -> Sequence[TokenView]:
        return [view(token) for token in await self._keys.list()]

    async def issue(self, to: Identity, by: By, *, expires_at: datetime | None) -> IssuedToken:
        return issued_token(*await self._keys.issue(to, by, expires_at=expires_at))

    async def revoke(self, id: str, by: By) -> None:
        await self._keys.revoke(id, by)

    async def sessions(self) -> Sequence[SessionView]:
        return await self._sessions.list()

    async def end_session(self, id: str, by: By) -> None:
        await self._sessions.end(id, by)


class _RemoteTokens:
    """Tokens behind a server; the caller must be an administrator."""

    def __init__(self, client: "Client") -> None:
        self._tokens = client.tokens
        self._sessions = client.sessions

    async def list(self) -> Sequence[TokenView]:
        return await self._tokens.list()

    async def issue(self, to: Identity, by: By, *, expires_at: datetime | None) -> IssuedToken:
        return await self._tokens.issue(to, expires_at=expires_at, reason=by.reason)

    async def revoke(self, id: str, by: By) -> None:
        await self._tokens.revoke(id, reason=by.reason)

    async def sessions(self) -> Sequence[SessionView]:
        return await self._sessions.list()

    async def end_session(self, id: str, by: By) -> None:
        await self._sessions.end(id, reason=by.reason)
