"""Dead events live for 90 days: letters, reviewed or not, and copies in the queue."""

from datetime import timedelta

import msgspec
import pytest
from msgspec import structs

from courier.replay import Desk, Wish
from courier.retention import Cleaning, delete_copies, letter_retention, time_to_live
from courier.settings import DLQ, profile
from deadletter import ConfigError, State
from deadletter.core.errors import Conflict
from deadletter.core.letter import By, DeadLetter
from deadletter.office.letters import Letters
from deadletter.ports.letters import Move
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


async def close(rig: Rig, letter: DeadLetter) -> None:
    """Close a letter although it was not replayed, as an office without an order may."""
    store = await rig.office.letters()
    move = Move(ids=(letter.id,), old=frozenset({State.REVIEWED}), new=State.CLOSED)
    assert await store.move(move, ANNA)


async def gone_after(rig: Rig, days: float) -> int:
    """Return how many letters a pass of the worker's retention deletes, days later."""
    clock = FakeClock(SystemClock().now() + timedelta(days=days))
    store = await rig.office.letters()
    retention = letter_retention(rig.settings, rig.profile, store, clock)
    return (await retention.run(By("gateway-worker", "DLQ_TTL_DAYS"))).letters


def test_the_time_to_live_is_ninety_days_unless_the_variable_says_otherwise() -> None:
    usual, shorter = profile({}), profile({"DLQ_TTL_DAYS": "30"})

    assert time_to_live(usual) == timedelta(days=90)
    assert time_to_live(shorter) == timedelta(days=30)
    with pytest.raises(ConfigError, match="DLQ_TTL_DAYS must be a number"):
        profile({"DLQ_TTL_DAYS": "ninety"})


async def test_a_closed_letter_goes_after_ninety_days_and_not_before(rig: Rig) -> None:
    letter = await dead_letter(rig)
    await Letters(await rig.office.letters(), SystemClock()).review([letter.id], ANNA)
    await close(rig, letter)

    assert await gone_after(rig, 89.9) == 0
    assert await gone_after(rig, 90.1) == 1

    assert await rig.db["dead_letter_events"].count_documents({}) == 0
    audit = await rig.db["dead_letter_audit"].find({"action": "expire"}).to_list()
    assert [one["actor"] for one in audit] == ["gateway-worker"]


async def test_a_letter_nobody_has_reviewed_goes_after_ninety_days_and_is_audited(rig: Rig) -> None:
    letter = await dead_letter(rig)

    assert await gone_after(rig, 89.9) == 0
    assert (await rig.letter()).head.state is State.PENDING
    assert await gone_after(rig, 90.1) == 1

    assert await rig.letters() == []
    (entry,) = await rig.db["dead_letter_audit"].find({"action": "expire"}).to_list()
    told = (entry["target"], entry["actor"], entry["reason"], entry["detail"])
    assert told == (letter.id, "gateway-worker", "DLQ_TTL_DAYS", "was pending")
    assert await (await rig.office.letters()).verify() == []


async def test_a_replay_under_way_is_waited_for_however_old(rig: Rig) -> None:
    await dead_letter(rig)
    await Desk(await rig.office.engine()).replay(Wish(limit=1, by=ANNA))

    assert await gone_after(rig, 10_000) == 0

    assert (await rig.letter()).head.state is State.REPLAYING


class TestUnreviewedAreKept:
    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"DLQ_KEEP_UNREVIEWED": "true"}

    async def test_a_letter_nobody_has_reviewed_stays_for_ever(self, rig: Rig) -> None:
        await dead_letter(rig)

        assert await gone_after(rig, 10_000) == 0

        assert (await rig.letter()).head.state is State.PENDING


async def test_the_worker_deletes_letters_and_copies_by_itself(rig: Rig) -> None:
    await dead_letter(rig)
    at_once = structs.replace(rig.profile.retention, dead=-60.0, unreviewed=-60.0)
    rig.profile = structs.replace(rig.profile, retention=at_once)

    await rig.work()

    async def are_gone() -> bool:
        return await rig.letters() == [] and await rig.copies() == []

    await eventually(are_gone, within=20)


async def test_nothing_is_deleted_by_a_clock_that_is_wrong(rig: Rig) -> None:
    await dead_letter(rig)
    store, engine = await rig.office.letters(), await rig.office.engine()
    later = FakeClock(SystemClock().now() + timedelta(days=91))

    with pytest.raises(Conflict, match="nothing is deleted until they agree"):
        await Cleaning(engine, store, rig.settings, rig.profile, later).run(ANNA)

    assert len(await rig.letters()) == 1


async def test_copies_in_the_dead_letter_queue_go_after_ninety_days(rig: Rig) -> None:
    rig.fault(status=422, message="validation failed")
    for event_id in ("evt_1", "evt_2"):
        await rig.report(event_id)
    await rig.work()
    await eventually(lambda: are_dead(rig, 2), within=20)
    await rig.rest()
    broker = (await rig.office.engine()).broker
    first, second = sorted(one.head.dead_at for one in await rig.letters())

    assert await delete_copies(broker, before=first) == 0
    assert await delete_copies(broker, before=second) == 1
    assert await delete_copies(broker, before=second + timedelta(seconds=1)) == 1

    assert await rig.copies() == []
    assert len(await rig.letters()) == 2


async def test_a_copy_that_a_worker_of_bullmq_has_read_goes_after_ninety_days(rig: Rig) -> None:
    await dead_letter(rig)

    broker = (await rig.office.engine()).broker
    (copy,) = await broker.source(DLQ).receive(limit=10, wait=0, lease=60)

    age = {"age": 90 * 86_400}
    options = msgspec.json.decode(copy.message.header("bullmq-opts") or "")
    assert options == {"removeOnComplete": age, "removeOnFail": age}


async def are_dead(rig: Rig, count: int) -> bool:
    return len(await rig.letters()) == count
