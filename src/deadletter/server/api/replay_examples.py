"""Examples of requests about replays, and of their answers."""

from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from msgspec import structs

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    KeptPlan,
    Outcome,
    ReplayItem,
    Verdict,
)
from deadletter.core.ids import letter_id
from deadletter.core.letter import State
from deadletter.office.aftermath import Aftermath, Cause
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdict, LetterVerdicts, Plan
from deadletter.office.progress import ReplayProgress, Stage, StageState
from deadletter.office.selection import ReplayPage
from deadletter.ports import ReplayItems

_AT: Final = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
_ID: Final = letter_id("orders", "", "o-17")
_GROUP: Final = "f1a2b3c4d5e6"
_REPLAY: Final = "019a8c3e-7b1d-7c2a-9d4e-5f6071829304"
_WHY: Final = {"reason": "the bank is back"}
_SOME: Final = {"query": "is:pending source:orders", "expect": 3} | _WHY
_CAMPAIGN: Final = Campaign(
    id=_REPLAY,
    query="is:pending source:orders",
    created_at=_AT,
    actor="anna",
    reason="the bank is back",
    state=CampaignState.RUNNING,
    rate=50.0,
    counts={Outcome.PLANNED: 2, Outcome.SENT: 1},
)
_FROZEN: Final = structs.replace(
    _CAMPAIGN,
    state=CampaignState.PLANNED,
    plan=KeptPlan(
        total=3,
        judged=3,
        is_judged=True,
        judged_at=_AT,
        verdicts={Verdict.READY: 2, Verdict.CREDENTIALS: 1},
        targets={Verdict.READY: {"orders": 2}, Verdict.CREDENTIALS: {"orders": 1}},
    ),
    counts={},
)
_VERDICTS: Final = LetterVerdicts(
    (LetterVerdict(letter_id=_ID, source="orders", target="orders", verdict=Verdict.READY),), 100
)
_PLAN: Final = {
    "replay": _CAMPAIGN,
    "plan": Plan(
        query="is:pending source:orders",
        total=3,
        verdicts={Verdict.READY: 3},
        sources={"orders": 3},
        states={State.PENDING: 3},
        targets={"orders": 3},
    ),
    "sendable": 3,
}
_REPLAY_BODY: Final = _SOME | {"rate": 50.0}

_Told: TypeAlias = tuple[Any, Any, dict[int, Any]]


def _told(answered: Any, asked: Any = None, others: dict[int, Any] | None = None) -> _Told:
    return answered, asked, others or {}


REPLAYS: Final[dict[str, _Told]] = {
    "plan_replay": _told(_PLAN, _REPLAY_BODY),
    "freeze_replay": _told(_FROZEN, _REPLAY_BODY),
    "agree_to_plan": _told(
        structs.replace(_FROZEN, care=Care(skip=(Verdict.CREDENTIALS,))),
        {"leave_out": ["credentials"], "expect": 2} | _WHY,
    ),
    "approve_replay": _told(structs.replace(_FROZEN, approved_by="backend"), {"expect": 3} | _WHY),
    "start_replay": _told(_PLAN, _REPLAY_BODY),
    "list_replays": _told(ReplayPage((_CAMPAIGN,), after=_REPLAY)),
    "get_replay": _told(_CAMPAIGN),
    "start_planned": _told(_CAMPAIGN, {"expect": 3} | _WHY),
    "pause_replay": _told(_CAMPAIGN, _WHY),
    "resume_replay": _told(_CAMPAIGN, _WHY),
    "cancel_replay": _told(_CAMPAIGN, _WHY),
    "get_progress": _told(
        ReplayProgress(
            total=3,
            sent=1,
            handled=1,
            failed=0,
            on_the_way=0,
            left=2,
            left_out=0,
            stages=(
                Stage(after=0, until=1, state=StageState.DONE, sent=1, handled=1, failed=0),
                Stage(after=1, until=3, state=StageState.CURRENT),
            ),
            started_at=_AT,
            seconds_left=40.0,
        )
    ),
    "get_aftermath": _told(
        Aftermath(
            failed=2,
            looked_at=2,
            causes=(
                Cause(
                    fingerprint=_GROUP,
                    source="orders",
                    error_type="builtins.TimeoutError",
                    text="the bank did not answer",
                    letters=2,
                    is_same=True,
                    samples=(_ID,),
                ),
            ),
        )
    ),
    "judge_letters": _told(_VERDICTS, _REPLAY_BODY),
    "list_verdicts": _told(_VERDICTS),
    "report_replay": _told(
        ReplayItems(
            (
                ReplayItem(
                    letter_id=_ID,
                    campaign=_REPLAY,
                    actor="anna",
                    generation=1,
                    outcome=Outcome.CONFIRMED,
                    taken_at=_AT,
                    sent_at=_AT,
                    settled_at=_AT,
                ),
            ),
            after=100,
        )
    ),
    "confirm_messages": _told(Confirmed(1, ("o-18",)), {"message_ids": ["o-17", "o-18"]} | _WHY),
    "replay_node": _told(
        _PLAN, {"limit": 1_000, "filter": "since:2d"} | _WHY, {200: _PLAN | {"replay": None}}
    ),
}
"""By operation: the answer, the body of the request, and other answers by status."""
