"""Acts on the system: verify, the retention, a test of the alerts."""

from typing import Any, Final

from litestar import Request, Response, get, post
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.core.text import many
from deadletter.server.acting.upkeep import upkeep_of
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import About, done, is_partial, render_page, render_part
from deadletter.server.context import Who

from .system import load_retention, load_verify, tested_rows

_ADMIN: Final = [needs(Role.ADMIN)]


class RetentionForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form that runs the retention: the number is typed, because it is for good."""

    expect: int
    typed: str = ""
    force: bool = False
    reason: str = ""


@post("/verify", guards=[needs(Role.OPERATOR)], include_in_schema=False, status_code=200)
async def start_verify(request: Request[Any, Any, Any], who: Who) -> Response[bytes]:
    """Start verify; it goes on when the page is closed."""
    upkeep_of(request.app.state).verify(who)
    if is_partial(request):
        return render_part(request, "running/parts/verify.html", load_verify(request))
    notice = Notice(text="Verify has started. It goes on when this page is closed.")
    return done(request, notice, to="/system")


@get("/retention/dialog", guards=_ADMIN, include_in_schema=False)
async def ask_retention(request: Request[Any, Any, Any], who: Who) -> Response[bytes]:
    """Ask whether to delete letters; says how many."""
    page = await load_retention(request, who, most=None)
    if is_partial(request):
        return render_part(request, "running/parts/run_retention.html", page)
    about = About(title="Retention", screen="system", command="dlq retention run")
    return await render_page(request, "running/run_retention.html", page, about)


@post(
    "/retention",
    guards=_ADMIN,
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def run_retention(request: Request[Any, Any, Any], who: Who) -> Response[bytes]:
    """Start to delete letters whose time is over."""
    form = await read_form(request, RetentionForm)
    if form.typed.replace(",", "").strip() != str(form.expect):
        raise ConfigError(f"type the number {form.expect:,} to delete that many letters for good")
    run = await upkeep_of(request.app.state).sweep(
        who, expect=form.expect, force=form.force, reason=form.reason
    )
    text = f"Deleting {many(run.total, 'letter')}. It goes on when this page is closed."
    return done(request, Notice(text=text), to="/system/retention")


@post("/alerts/test", guards=_ADMIN, include_in_schema=False, status_code=200)
async def try_alerts(request: Request[Any, Any, Any], who: Who) -> Response[bytes]:
    """Send a test notice to each target, and say what each answered."""
    found = await upkeep_of(request.app.state).test_alerts(who)
    page = tested_rows(found)
    if is_partial(request):
        return render_part(request, "running/parts/alerts.html", page)
    about = About(title="Test of the alerts", screen="system")
    return await render_page(request, "running/alerts.html", page, about)


routes: Final[list[Any]] = [start_verify, ask_retention, run_retention, try_alerts]
