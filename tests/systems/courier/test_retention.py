"""Dead events are kept for 90 days; those that nobody has looked at, for ever."""

from datetime import timedelta

import pytest

from courier.policy import kept_for
from courier.settings import profile
from deadletter import ConfigError, State
from deadletter.core.letter import By, DeadLetter
from deadletter.office.letters import Letters
from deadletter.office.retention import Retention
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, eventually
from systems.courier.rig import Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

ANNA = By("anna", "seen")


async def dead_letter(rig: Rig) -> DeadLetter:
    rig.fault(status=422, message="validation failed")
    await rig.report()
    await rig.work()
    letter = await rig.until_letter(State.PENDING)
    await rig.rest()
    return letter


async def gone_after(rig: Rig, days: float) -> int:
    """How many letters a pass of the worker's retention lets go of, days later."""
    clock = FakeClock(SystemClock().now() + timedelta(days=days))
    store = await rig.office.letters()
    retention = Retention(store, clock, keep=kept_for(rig.profile))
    return (await retention.run(By("gateway-worker", "DLQ_TTL_DAYS"))).letters


def test_the_time_to_live_is_ninety_days_unless_the_variable_says_otherwise() -> None:
    usual, shorter = profile({}), profile({"DLQ_TTL_DAYS": "30"})

    assert set(kept_for(usual).values()) == {timedelta(days=90)}
    assert set(kept_for(shorter).values()) == {timedelta(days=30)}
    with pytest.raises(ConfigError, match="DLQ_TTL_DAYS must be a number"):
        profile({"DLQ_TTL_DAYS": "ninety"})


async def test_a_closed_letter_goes_after_ninety_days_and_not_before(rig: Rig) -> None:
    letter = await dead_letter(rig)
    await Letters(await rig.office.letters(), SystemClock()).close([letter.id], ANNA)

    assert await gone_after(rig, 89.9) == 0
    assert await gone_after(rig, 90.1) == 1

    assert await rig.db["dead_letter_events"].count_documents({}) == 0
    audit = await rig.db["dead_letter_audit"].find({"action": "expire"}).to_list()
    assert [one["actor"] for one in audit] == ["gateway-worker"]


async def test_a_letter_nobody_has_looked_at_never_goes(rig: Rig) -> None:
    await dead_letter(rig)

    assert await gone_after(rig, 10_000) == 0

    assert (await rig.letter()).head.state is State.PENDING


async def test_the_worker_lets_go_by_itself(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    letter = await dead_letter(rig)
    await Letters(await rig.office.letters(), SystemClock()).close([letter.id], ANNA)
    later = FakeClock(SystemClock().now() + timedelta(days=91))
    monkeypatch.setattr("courier.worker.SystemClock", lambda: later)

    await rig.work()

    async def is_gone() -> bool:
        return await rig.letters() == []

    await eventually(is_gone, within=20)
