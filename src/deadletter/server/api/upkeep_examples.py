"""Examples of the upkeep and of sessions in the description of the API."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deadletter.core.access import Role, SessionView
from deadletter.core.alerts import TargetKind
from deadletter.office.doctor import Check, Health
from deadletter.office.retention import Swept
from deadletter.office.upkeep import (
    VERIFY_STEPS,
    AlertTest,
    RetentionDue,
    RetentionRun,
    RunState,
    VerifyRun,
)
from deadletter.office.verify import Sums, Verified

_AT: Final = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
_SWEEP: Final = RetentionRun(
    state=RunState.RUNNING, actor="anna", started_at=_AT, step="deleting", done=1_000, total=1_204
)

SESSION: Final = SessionView(
    id="8c1f0a9b3d47",
    name="anna",
    role=Role.ADMIN,
    sources=(),
    token_id="0f3a9c51d2",  # noqa: S106 -- not a secret
    created_at=_AT,
    expires_at=_AT + timedelta(hours=12),
    current=True,
)

UPKEEP: Final[dict[str, tuple[Any, Any]]] = {
    "list_checks": (
        [
            Check("reachable", Health.OK, "The engine answers; it has 2 mailboxes."),
            Check("disk", Health.WARN, "400 MB are free: make room, or move the file."),
        ],
        None,
    ),
    "get_verification": (
        VerifyRun(
            state=RunState.DONE,
            actor="anna",
            started_at=_AT,
            ended_at=_AT + timedelta(seconds=3),
            done=len(VERIFY_STEPS),
            total=len(VERIFY_STEPS),
            found=Verified(
                findings=(),
                mailboxes=(Sums(mailbox="orders", sent=1_020, left=1_004, present=16, buried=4),),
                letters=4,
            ),
        ),
        None,
    ),
    "start_verification": (
        VerifyRun(
            state=RunState.RUNNING,
            actor="anna",
            started_at=_AT,
            step=VERIFY_STEPS[0],
            total=len(VERIFY_STEPS),
        ),
        None,
    ),
    "get_retention": (
        RetentionDue(
            due=1_204,
            letters=9_120,
            closed=90.0,
            replayed=90.0,
            discarded=90.0,
            ledger=30.0,
            every=None,
            run=RetentionRun(
                state=RunState.DONE,
                actor="anna",
                started_at=_AT,
                ended_at=_AT,
                done=12,
                total=12,
                swept=Swept(letters=12, ledger=40),
            ),
        ),
        None,
    ),
    "run_retention": (_SWEEP, {"expect": 1_204, "reason": "the disk is full"}),
    "try_alerts": (
        [
            AlertTest(
                kind=TargetKind.WEBHOOK,
                to="https://alerts.example",
                accepted=True,
                text="the webhook answered that it took the notice",
            )
        ],
        {"reason": "a new target"},
    ),
}
