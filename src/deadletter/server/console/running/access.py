"""Access: tokens, sessions, and what roles may do."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role, SessionView, TokenView
from deadletter.core.letter import AuditEntry
from deadletter.core.text import many
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.server.auth.guards import caller, needs
from deadletter.server.auth.keys import is_provided, view
from deadletter.server.auth.routes import keys
from deadletter.server.auth.sessions import sessions
from deadletter.server.console import words
from deadletter.server.console.pages import About, render_page, render_part
from deadletter.server.context import Here, ServerContext, Who

SOON: Final = timedelta(days=7)
_UNUSED: Final = timedelta(days=1)
_BLOCKED: Final = 5

Mark: TypeAlias = Literal["", "expired", "ends soon", "never used"]

MAY: Final = {
    Role.READER: "looks at letters, groups, replays, mailboxes and the audit. Secrets in"
    " messages are masked.",
    Role.OPERATOR: "also sees messages unmasked, decides on letters, edits, replays and exports"
    " them. Programs that produce and lease need it, too.",
    Role.ADMIN: "also purges letters, imports, changes mailboxes and queues, and makes tokens.",
}
"""What each role may do besides what the roles before it may."""


class TokenRow(Struct, frozen=True, kw_only=True):
    """One token, and what is remarkable about it."""

    token: TokenView
    sees: str
    sessions: int
    is_provided: bool  # belongs to a person who signs in with a provider
    is_used: bool  # within the last hour: it is not known more exactly
    mark: Mark


class SessionRows(Struct, frozen=True, kw_only=True):
    """Sessions that have not ended, latest first."""

    sessions: tuple[SessionView, ...]
    sees: tuple[str, ...]  # the mailboxes of each, in words
    of_everybody: bool
    token: str = ""  # the id of the token that the caller uses instead of a session


class AccessPage(Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    headline: str
    below: str
    tokens: tuple[TokenRow, ...]
    rows: SessionRows
    roles: tuple[tuple[str, str], ...]
    blocked: tuple[AuditEntry, ...]
    guarded: bool  # False: access is off, and there are no tokens


@get("/access", guards=[needs(Role.ADMIN)], include_in_schema=False)
async def show_access(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    part: Annotated[Literal["head", "tokens", "sessions"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show tokens and sessions, or one part of them."""
    page = await load_access(context, who, await current_session(request))
    if part is not None:
        name = "access_head" if part == "head" else part
        return render_part(request, f"running/parts/{name}.html", page)
    about = About(title="Access", screen="access", command="dlq tokens", api="/tokens")
    return await render_page(request, "running/access.html", page, about)


@get("/sessions", guards=[needs(Role.READER)], include_in_schema=False)
async def show_sessions(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    part: Annotated[Literal["sessions"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show one's own sessions; to administrators, all."""
    rows = await load_sessions(context, who, await current_session(request))
    page = _Sessions(rows=rows, guarded=context.access is not None)
    if part is not None:
        return render_part(request, "running/parts/sessions.html", page)
    about = About(title="Sessions", command="dlq tokens sessions", api="/sessions")
    return await render_page(request, "running/sessions.html", page, about)


class _Sessions(Struct, frozen=True, kw_only=True):
    rows: SessionRows
    guarded: bool


async def load_access(context: ServerContext, who: Identity, current: str) -> AccessPage:
    """Return what an administrator sees of the access to this office."""
    roles = tuple((role.value, MAY[role]) for role in Role)
    rows = await load_sessions(context, who, current)
    if context.access is None:
        return AccessPage(
            headline="Access is off",
            below="Everybody on this machine is the administrator local.",
            tokens=(),
            rows=rows,
            roles=roles,
            blocked=(),
            guarded=False,
        )
    now = context.clock.now()
    found = [view(token) for token in await keys(context).list(who)]
    opened = Counter(session.token_id for session in rows.sessions)
    tokens = tuple(token_row(token, now, opened[token.id]) for token in found)
    blocked: Sequence[AuditEntry] = ()
    if not who.sources:
        wanted = AuditFilter(action="block")
        blocked = await latest_entries(context.store, wanted, before=None, limit=_BLOCKED)
    return AccessPage(
        headline=f"{many(len(tokens), 'token')}, {many(len(rows.sessions), 'session')}",
        below=_below(tokens),
        tokens=tokens,
        rows=rows,
        roles=roles,
        blocked=tuple(blocked),
        guarded=True,
    )


async def load_sessions(context: ServerContext, who: Identity, current: str) -> SessionRows:
    """Return the sessions that a person may see; `current` is the hash of their own."""
    if context.access is None:
        return SessionRows(sessions=(), sees=(), of_everybody=False)
    found = await sessions(context).list(who, current=current)
    return SessionRows(
        sessions=tuple(found),
        sees=tuple(sees_words(session.sources) for session in found),
        of_everybody=who.may(Role.ADMIN),
    )


def token_row(token: TokenView, now: datetime, opened: int) -> TokenRow:
    """Return a token with what is remarkable about it."""
    used = token.last_used_at
    return TokenRow(
        token=token,
        sees=sees_words(token.sources),
        sessions=opened,
        is_provided=is_provided(token.id),
        is_used=used is not None and now - used < timedelta(hours=1),
        mark=mark_of(token, now),
    )


def mark_of(token: TokenView, now: datetime) -> Mark:
    """Return why somebody should look at a token, if so."""
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    if token.expires_at is not None and token.expires_at - now <= SOON:
        return "ends soon"
    if token.last_used_at is None and now - token.created_at >= _UNUSED:
        return "never used"
    return ""


def sees_words(sources: Sequence[str]) -> str:
    """Return the mailboxes of a token in words."""
    return words.joined(list(sources)) or "all mailboxes"


async def current_session(request: Request[Any, Any, Any]) -> str:
    """Return the hash of the caller's session; empty if there is none."""
    session = (await caller(request)).session
    return session.hash if session else ""


def _below(tokens: Sequence[TokenRow]) -> str:
    marks = Counter(row.mark for row in tokens)
    looked_at: tuple[Mark, ...] = ("expired", "ends soon", "never used")
    parts = [f"{marks[mark]} {mark}" for mark in looked_at if marks[mark]]
    return " · ".join(parts) or "No token has expired, ends soon or was never used."


routes: Final[list[Any]] = [show_access, show_sessions]
