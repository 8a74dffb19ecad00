"""Routes of upkeep: checks, verify, retention, tests of alerts."""

from typing import Annotated, Any, Final

from litestar import Request, get, post
from litestar.params import JSONBody
from msgspec import Meta, Struct

from deadletter.core.access import Role
from deadletter.office.doctor import Check
from deadletter.office.upkeep import AlertTest, RetentionDue, RetentionRun, VerifyRun
from deadletter.server.acting.upkeep import check_unlimited, checkup, upkeep_of
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who

from .letters import Reason

READ: Final = [needs(Role.READER)]
OPERATE: Final = [needs(Role.OPERATOR)]
ADMIN: Final = [needs(Role.ADMIN)]


class RetentionWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a run of the retention."""

    expect: (
        Annotated[int, Meta(ge=0, description="Refuse if more letters than this are due.")] | None
    ) = None
    force: Annotated[
        bool, Meta(description="Delete even if that is more than half of all letters.")
    ] = False
    reason: Reason = ""


class AlertsWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a test of the alerts."""

    reason: Reason = ""


@get("/checks", guards=READ)
async def list_checks(context: Here, who: Who) -> list[Check]:
    """
    Check for common problems, and say what to do about each.

    For tokens without a limit to mailboxes.
    """
    return list(await checkup(context, who))


@get("/verify", guards=READ)
async def get_verification(request: Request[Any, Any, Any], who: Who) -> VerifyRun:
    """Return the run of verify in progress on this server, or the last one with its findings."""
    check_unlimited(who, "verify adds up")
    return upkeep_of(request.app.state).verification.run


@post("/verify", guards=OPERATE, status_code=202)
async def start_verification(request: Request[Any, Any, Any], who: Who) -> VerifyRun:
    """
    Start to check that no message was lost; it goes on in the background.

    It reads everything that the office keeps. One run at a time: another one is a conflict.
    """
    return upkeep_of(request.app.state).verify(who)


@get("/retention", guards=OPERATE)
async def get_retention(request: Request[Any, Any, Any], who: Who) -> RetentionDue:
    """Count the letters whose retention has ended, and return the last run; delete nothing."""
    return await upkeep_of(request.app.state).due(who)


@post("/retention", guards=ADMIN, status_code=202)
async def run_retention(
    request: Request[Any, Any, Any], who: Who, data: JSONBody[RetentionWish]
) -> RetentionRun:
    """
    Start to delete letters whose retention has ended; it goes on in the background.

    It deletes nothing if that is more than half of all letters, unless forced: the clock
    may be wrong.
    """
    return await upkeep_of(request.app.state).sweep(
        who, expect=data.expect, force=data.force, reason=data.reason
    )


@post("/alerts/test", guards=ADMIN)
async def try_alerts(
    request: Request[Any, Any, Any], who: Who, data: JSONBody[AlertsWish]
) -> list[AlertTest]:
    """Send a test notice to each target of the alerts, and return what each answered."""
    return list(await upkeep_of(request.app.state).test_alerts(who, data.reason))


routes: Final[list[Any]] = [
    *(list_checks, get_verification, start_verification),
    *(get_retention, run_retention, try_alerts),
]
