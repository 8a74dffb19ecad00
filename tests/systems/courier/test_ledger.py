"""Each key once: checked before processing, remembered afterwards, never blocked."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deadletter.testing.fakes import eventually
from systems.courier.rig import Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

DAY = timedelta(days=1)


def path(record: dict[str, Any]) -> list[str]:
    """The states a key went through."""
    return [step["state"] for step in record["path"]]


async def test_an_event_that_comes_twice_is_processed_once(rig: Rig) -> None:
    await rig.report()
    await rig.work()
    await rig.until("processed")

    await rig.report()
    await eventually(lambda: "duplicate" in rig.fates(), within=10)

    assert len(rig.stand.seen) == 1
    assert rig.stand.seen[0].key == "courier-x:evt_123"
    assert await rig.db["processed_events"].count_documents({}) == 1


async def test_events_of_different_keys_are_both_processed(rig: Rig) -> None:
    await rig.report("evt_1")
    await rig.report("evt_1", source="courier-y")
    await rig.work()

    await rig.until("processed", "courier-x:evt_1")
    await rig.until("processed", "courier-y:evt_1")

    assert len(rig.stand.seen) == 2


async def test_the_key_is_the_one_in_the_event_whoever_queued_it(rig: Rig) -> None:
    event = {"eventId": "e", "eventType": "x", "traceId": "t", "payload": {}}
    body = {**event, "idempotencyKey": "courier-z:e"}
    await rig.work()
    for name in ("one", "two"):  # two messages, as if a producer had tried twice
        await rig.office.send("courier-events-main", body, id=name)
        await rig.until("processed", "courier-z:e")

    await eventually(lambda: len(rig.fates()) == 2, within=20)

    assert rig.fates() == ["handled", "duplicate"]
    assert len(rig.stand.seen) == 1


async def test_a_key_is_processing_while_its_event_is_under_way(rig: Rig) -> None:
    rig.fault(delay_ms=1000, times=1)
    await rig.report()

    await rig.work()
    await rig.until("processing")
    await rig.until("processed")

    assert path(await rig.ledger()) == ["received", "processing", "processed"]


async def test_a_failed_event_is_processing_again_and_then_processed(rig: Rig) -> None:
    rig.fault(status=503, times=1)
    await rig.report()

    await rig.work()
    await rig.until("processed")

    assert path(await rig.ledger()) == [
        *("received", "processing", "failed"),
        *("processing", "processed"),
    ]


async def test_between_attempts_a_key_has_failed(rig: Rig) -> None:
    rig.fault(status=429, retry_after="600", times=1)
    await rig.report()

    await rig.work()
    await rig.until("failed")

    assert path(await rig.ledger()) == ["received", "processing", "failed"]
    assert await rig.letters() == []


async def test_events_that_exhaust_their_attempts_are_dead_lettered(rig: Rig) -> None:
    rig.fault(status=503)
    await rig.report()

    await rig.work()
    await rig.until("dead_lettered")

    assert path(await rig.ledger()) == ["received", *["processing", "failed"] * 3, "dead_lettered"]


async def test_a_hopeless_event_is_dead_lettered_after_its_first_failure(rig: Rig) -> None:
    rig.fault(status=422, message="validation failed")
    await rig.report()

    await rig.work()
    await rig.until("dead_lettered")

    states = ["received", "processing", "failed", "dead_lettered"]
    assert path(await rig.ledger()) == states


@pytest.mark.parametrize("fault", [None, "permanent"])
async def test_a_finished_key_lives_for_thirty_days_from_then_on(
    rig: Rig, fault: str | None
) -> None:
    if fault:
        rig.fault(status=422, message="validation failed")
    await rig.report()
    before = datetime.now(UTC)

    await rig.work()
    await rig.until("dead_lettered" if fault else "processed")

    ends = (await rig.ledger())["expire_at"]
    assert isinstance(ends, datetime)  # a date, not a text: the index needs one
    assert before + 30 * DAY - timedelta(seconds=1) <= ends
    assert ends <= datetime.now(UTC) + 30 * DAY
    indexes = await rig.db["processed_events"].index_information()
    assert indexes["by_expire_at"]["expireAfterSeconds"] == 0


class TestShortMemory:
    """The server itself forgets; it looks every second here, every minute elsewhere."""

    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"PROCESSED_EVENTS_TTL_DAYS": str(1.5 / 86_400)}

    async def test_the_server_forgets_a_finished_key_when_its_time_is_over(self, rig: Rig) -> None:
        await rig.report()
        await rig.work()
        await rig.until("processed")

        async def is_gone() -> bool:
            return not await rig.ledger()

        await eventually(is_gone, within=60)
        await rig.report()  # nobody remembers, so it is processed anew
        await eventually(lambda: len(rig.stand.seen) == 2, within=10)

    async def test_entries_in_progress_are_never_forgotten(self, rig: Rig) -> None:
        rig.fault(status=503, times=1)
        rig.fault(delay_ms=1900, times=1)
        await rig.report()

        await rig.work()
        await eventually(lambda: len(rig.stand.seen) == 2, within=10)
        await rig.until("processing")

        assert "expire_at" not in await rig.ledger()
        await rig.until("processed")


async def test_many_duplicates_at_once_are_one_delivery(rig: Rig) -> None:
    await rig.work()

    await asyncio.gather(*(rig.report() for _ in range(10)))
    await eventually(lambda: len(rig.fates()) == 10, within=30)

    assert sorted(rig.fates()) == ["duplicate"] * 9 + ["handled"]
    assert len(rig.stand.seen) == 1
    assert await rig.letters() == []
