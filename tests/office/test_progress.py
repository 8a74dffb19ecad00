"""The progress of a replay: stages, pace, and why it is paused."""

from datetime import timedelta
from typing import Any

import pytest

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    KeptPlan,
    Outcome,
    ReplayItem,
    Verdict,
)
from deadletter.core.letter import AuditEntry
from deadletter.office.outcomes import ITSELF
from deadletter.office.progress import StageState, load_progress, progress_of, stages_ahead
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LetterStore, QueueOptions
from deadletter.testing.fakes import FakeClock
from office.making import BY, NOW, make_letters
from office.sending import confirm, received

CAREFUL = Care(canary=10, ramp=True)
LATER = NOW + timedelta(minutes=2)


def campaign(
    care: Care = CAREFUL, state: CampaignState = CampaignState.RUNNING, **counts: int
) -> Campaign:
    return Campaign(
        id="c-1",
        query="*",
        created_at=NOW,
        actor="anna",
        state=state,
        care=care,
        counts={Outcome(name): n for name, n in counts.items()},
    )


def act(detail: str, seconds: int = 0, actor: str = "anna", reason: str = "") -> AuditEntry:
    at = NOW + timedelta(seconds=seconds)
    return AuditEntry(
        seq=seconds,
        at=at,
        actor=actor,
        action="campaign",
        target="c-1",
        detail=detail,
        reason=reason,
    )


def items(*outcomes: Outcome, seconds: int = 1) -> list[ReplayItem]:
    return [
        ReplayItem(
            letter_id=f"l-{n}",
            campaign="c-1",
            actor="anna",
            generation=1,
            outcome=outcome,
            taken_at=NOW + timedelta(seconds=seconds),
            settled_at=None if outcome is Outcome.SENT else LATER,
        )
        for n, outcome in enumerate(outcomes)
    ]


def told(stages: Any) -> list[tuple[int, int, str, int, int | None, int | None]]:
    return [(s.after, s.until, s.state, s.sent, s.handled, s.failed) for s in stages]


def test_a_canary_with_a_ramp_becomes_stages() -> None:
    found = [(one.after, one.until) for one in stages_ahead(CAREFUL, 397)]

    assert found == [(0, 10), (10, 100), (100, 397)]
    assert [one.until for one in stages_ahead(Care(canary=10), 397)] == [10, 397]
    assert [one.until for one in stages_ahead(Care(), 397)] == [397]
    assert [one.until for one in stages_ahead(CAREFUL, 10)] == [10]
    assert stages_ahead(CAREFUL, 0) == ()


def test_each_stage_has_its_own_outcomes() -> None:
    some = items(*[Outcome.CONFIRMED] * 9, Outcome.FAILED, *[Outcome.SENT] * 5)
    rest = [ReplayItem(letter_id=f"p-{n}", campaign="c-1", actor="a") for n in range(15)]
    now = campaign(confirmed=9, failed=1, sent=5, planned=15)

    found = progress_of(now, [], [*some, *rest], LATER)

    assert told(found.stages) == [
        (0, 10, StageState.DONE, 10, 9, 1),
        (10, 30, StageState.CURRENT, 5, 0, 0),
    ]
    assert (found.total, found.sent, found.left, found.step) == (30, 15, 15, 2)


def test_a_stage_that_waits_for_outcomes_is_not_done() -> None:
    some = items(*[Outcome.CONFIRMED] * 8, *[Outcome.SENT] * 2)
    rest = [ReplayItem(letter_id=f"p-{n}", campaign="c-1", actor="a") for n in range(10)]

    found = progress_of(campaign(confirmed=8, sent=2, planned=10), [], [*some, *rest], LATER)

    assert [one.state for one in found.stages] == [StageState.CURRENT, StageState.AHEAD]


def test_a_planned_replay_has_its_stages_ahead() -> None:
    plan = KeptPlan(total=30, judged=30, is_judged=True, verdicts={Verdict.READY: 30})
    now = campaign(state=CampaignState.PLANNED)
    frozen = Campaign(**{f: getattr(now, f) for f in now.__struct_fields__} | {"plan": plan})

    found = progress_of(frozen, [], [], LATER)

    assert {one.state for one in found.stages} == {StageState.AHEAD}
    assert (found.total, found.left, found.sent, found.started_at) == (30, 30, 0, None)


def test_the_time_left_is_told_by_the_pace_so_far() -> None:
    now = campaign(Care(), confirmed=60, sent=10, planned=50)

    found = progress_of(now, [], [], NOW + timedelta(seconds=30))

    assert found.seconds_left == pytest.approx(30.0)


def test_the_rate_bounds_the_time_left() -> None:
    now = campaign(Care(), confirmed=60, planned=60)
    slow = Campaign(**{f: getattr(now, f) for f in now.__struct_fields__} | {"rate": 0.5})

    found = progress_of(slow, [], [], NOW + timedelta(seconds=1))

    assert found.seconds_left == pytest.approx(120.0)


def test_a_replay_that_stopped_by_itself_says_why() -> None:
    paused = campaign(state=CampaignState.PAUSED, failed=3, confirmed=7, planned=5)
    acts = [
        act("running to paused", 9, ITSELF, "stopped by itself: 3 of the first 10 failed again"),
        act("planned to running", 1),
    ]

    found = progress_of(paused, acts, [], LATER)

    assert found.pause is not None
    assert found.pause.by_itself
    assert found.pause.reason.endswith("3 of the first 10 failed again")
    assert found.seconds_left is None
    assert found.started_at == NOW + timedelta(seconds=1)


def test_a_person_who_paused_is_named_and_a_running_replay_has_no_pause() -> None:
    acts = [act("running to paused", 9, reason="lunch"), act("planned to running", 1)]

    paused = progress_of(campaign(state=CampaignState.PAUSED, planned=5), acts, [], LATER)
    running = progress_of(campaign(planned=5), acts, [], LATER)

    assert paused.pause is not None
    assert (paused.pause.actor, paused.pause.by_itself) == ("anna", False)
    assert running.pause is None


def test_a_resumed_replay_begins_its_steps_anew() -> None:
    before = items(*[Outcome.CONFIRMED] * 3, Outcome.FAILED, seconds=1)
    rest = [ReplayItem(letter_id=f"p-{n}", campaign="c-1", actor="a") for n in range(20)]
    acts = [act("paused to running", 60), act("running to paused", 30), act("planned to running")]

    found = progress_of(campaign(confirmed=3, failed=1, planned=20), acts, [*before, *rest], LATER)

    assert [(one.after, one.until) for one in found.stages] == [(0, 4), (4, 14), (14, 24)]
    assert found.began_again_at == NOW + timedelta(seconds=60)
    assert progress_of(campaign(confirmed=3, planned=900), acts, before, LATER).stages == ()


async def test_the_progress_of_a_real_replay(
    store: LetterStore, engine: Engine, replay: Replay, clock: FakeClock
) -> None:
    await engine.broker.create(QueueOptions(name="orders"))
    await store.keep(make_letters(4))
    sent = await replay.start("*", BY)
    await replay.run(sent.id)
    clock.advance(5.0)
    await confirm(store, await received(engine))

    found = await load_progress(store, await replay.status(sent.id), clock.now())

    assert told(found.stages) == [(0, 4, StageState.DONE, 4, 4, 0)]
    assert (found.handled, found.left, found.seconds) == (4, 0, 5.0)
