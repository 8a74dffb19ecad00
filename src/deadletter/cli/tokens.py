"""dlq tokens: who may use the server; through it, or here beside it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import RenderableType
from rich.table import Table

from deadletter.core.access import Pass, Role, TokenView
from deadletter.core.errors import NotFound

from .asking import agreed
from .desk import AtDesk
from .keys import opened_keys
from .options import Reason, Yes
from .tables import NARROW, Name, cell, firm_column, name_column, table, text_column
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
    async with opened_keys(desk) as keys:
        found = await keys.list()
    if desk.as_json:
        for token in found:
            desk.document(token)
        return
    if not found:
        desk.tell("There are no tokens yet; `dlq tokens create NAME` makes one.")
        return
    desk.show(_table(found, desk.clock.now(), desk.out.width))


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
    async with opened_keys(desk, make=True) as keys:
        issued = await keys.issue(to, desk.by(reason), expires_at=expires_at)
    if desk.as_json:
        desk.document(issued)
        return
    desk.tell(issued.token)
    desk.hint(f"Token {issued.id} for {name}, {role}. It is not shown again.")


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
    async with opened_keys(desk) as keys:
        token = next((one for one in await keys.list() if one.id == id), None)
        if token is None:
            raise NotFound(f"there is no token {id}")
        agreed(desk, f"revoke token {id} of {token.name}", yes=yes)
        await keys.revoke(id, desk.by(reason))
    if desk.as_json:
        desk.document(token)
    else:
        desk.tell(f"Token {id} of {token.name} is revoked.")


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
    # It is known to the hour.
    return "within 1 h" if now - at < timedelta(hours=1) else ago(at, now)
