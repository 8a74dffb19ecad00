"""dlq tokens: who may use the server; done here, beside it, without a token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs

from deadletter.assembly.serving import footing
from deadletter.core.access import Pass, Role
from deadletter.web.auth.keys import Keys
from deadletter.web.auth.views import issued, view

from .asking import agreed
from .desk import AtDesk, Desk
from .options import Reason, Yes
from .tables import cell, firm_column, table, text_column
from .times import ago

app = App(
    name="tokens",
    help="Tokens of the server's callers: create, list, revoke them.",
    help_format="markdown",
)


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the tokens; what they are known by is not kept."""
    async with _keys(desk) as keys:
        found = await keys.list()
    if desk.as_json:
        for token in found:
            desk.document(view(token))
        return
    if not found:
        desk.tell("There are no tokens yet; `dlq tokens create NAME` makes one.")
        return
    shown = table()
    firm_column(shown, "id")
    text_column(shown, "name")
    firm_column(shown, "role")
    text_column(shown, "sees")
    for column in ("created", "used", "expires"):
        firm_column(shown, column)
    now = desk.clock.now()
    for token in found:
        is_over = token.is_over(now)
        shown.add_row(
            cell(token.id, "cyan"),
            cell(token.to.name),
            cell(token.to.role),
            cell(", ".join(token.to.sources) or "all"),
            cell(ago(token.created_at, now)),
            cell(_used(token.last_used_at, now)),
            cell(
                ago(token.expires_at, now) if token.expires_at else "never",
                "red" if is_over else "",
            ),
        )
    desk.show(shown)


@app.command
async def create(
    name: str,
    /,
    *,
    role: Role = Role.READER,
    source: tuple[str, ...] = (),
    days: Annotated[float | None, Parameter(validator=Number(gt=0, lte=36500))] = None,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Make a token and print it, this once.

    Args:
        name: Whose it is; the actor in the audit.
        role: reader looks; operator also reviews, edits, replays, produces and
            leases; admin also purges, changes queues and makes tokens.
        source: A mailbox whose letters it may see; may be repeated. Otherwise all.
        days: How long it is good. Otherwise until it is revoked.
        reason: Why; goes into the audit.
    """
    to = Pass(name=name, role=role, sources=source)
    expires_at = desk.clock.now() + timedelta(days=days) if days else None
    async with _keys(desk, make=True) as keys:
        token, shown = await keys.issue(to, desk.by(reason), expires_at=expires_at)
    if desk.as_json:
        desk.document(issued(token, shown))
        return
    desk.tell(shown)
    desk.hint(f"Token {token.id} for {name}, {role}. It is not shown again.")


@app.command
async def revoke(
    id: str, /, *, reason: Reason = "", yes: Yes = False, desk: AtDesk
) -> None:
    """
    End a token and every session opened with it, on all servers, at once.

    Args:
        id: Which; the part between the underscores.
        reason: Why; goes into the audit.
        yes: Do not ask.
    """
    async with _keys(desk) as keys:
        agreed(desk, f"revoke token {id}", yes=yes)
        token = await keys.revoke(id, desk.by(reason))
    if desk.as_json:
        desk.document(view(token))
    else:
        desk.tell(f"Token {id} of {token.to.name} is revoked.")


def _used(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "never"
    # It is known to the hour.
    return "within 1 h" if now - at < timedelta(hours=1) else ago(at, now)


@asynccontextmanager
async def _keys(desk: Desk, *, make: bool = False) -> AsyncIterator[Keys]:
    """The tokens of the server with these settings, whether or not it asks for them."""
    if not make:
        desk.check_file()
    serve = structs.replace(desk.settings.serve, access="on")
    async with footing(
        structs.replace(desk.settings, serve=serve),
        url=desk.given_url,
        office=desk.given_office,
        clock=desk.clock,
        dice=desk.dice,
    ) as ground:
        assert ground.access is not None  # it is on
        yield Keys(ground.access, ground.letters, desk.clock)
