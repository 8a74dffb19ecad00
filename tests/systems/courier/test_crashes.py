"""Whatever dies, and whenever: no event is lost, none is doubled, no key is blocked."""

import asyncio
import signal
from pathlib import Path

import pytest

from deadletter import State
from deadletter.core.events import OutOfReach
from deadletter.testing.fakes import eventually
from servers import Server
from systems.courier import dying_worker
from systems.courier.rig import Rig, an_event

pytestmark = pytest.mark.xdist_group("mongodb_server")


@pytest.fixture
def environ() -> dict[str, str]:
    return {"WORKER_LEASE_SECONDS": "1"}


async def test_the_letter_is_kept_before_the_ledger_says_so(rig: Rig) -> None:
    rig.fault(status=422, message="validation failed")
    await rig.report()

    async with rig.watching("dead_letter_events", "processed_events") as changes:
        await rig.work()
        await rig.until("dead_lettered")
        await eventually(lambda: len(changes) >= 3, within=10)

    written = [change["ns"]["coll"] for change in changes]
    kept = written.index("dead_letter_events")
    marked = [
        place for place, change in enumerate(changes) if change["ns"]["coll"] == "processed_events"
    ]
    assert len(marked) == 2  # processing, dead_lettered
    assert marked[0] < kept < marked[1]


@pytest.mark.parametrize(
    ("when", "copied", "left_at"),
    [
        ("copy", 1, "processing"),
        ("ledger", 2, "processing"),  # a copy is told at least once
        ("ack", 2, "dead_lettered"),
    ],
)
async def test_a_worker_that_dies_while_burying_loses_and_doubles_nothing(
    rig: Rig, when: str, copied: int, left_at: str
) -> None:
    rig.fault(status=422, message="validation failed")
    await rig.report()

    dying = await rig.start(str(Path(dying_worker.__file__)), when)
    await dying.communicate()

    assert dying.returncode == dying_worker.CODE
    assert (await rig.ledger())["state"] == left_at
    first = await rig.letter()
    await rig.work()
    await rig.until("dead_lettered")
    await eventually(lambda: is_drained(rig), within=20)
    await rig.rest()

    assert (await rig.letter()).id == first.id
    copies = await rig.copies()
    assert 1 <= len(copies) <= copied
    assert {one["eventId"] for one in copies} == {"evt_123"}
    assert await (await rig.office.letters()).verify() == []


async def is_drained(rig: Rig) -> bool:
    """Whether nothing is left in the main queue."""
    queues = await (await rig.office.engine()).broker.queues()
    (main,) = [one for one in queues if one.options.name == "courier-events-main"]
    return not (main.ready + main.delayed + main.claimed + main.suspects)


def is_out_of_reach(rig: Rig) -> bool:
    """Whether the worker has said that it waits for something."""
    return any(isinstance(one, OutOfReach) for one in rig.events)


async def test_a_worker_killed_while_processing_blocks_no_key(rig: Rig) -> None:
    rig.fault(delay_ms=60_000, times=1)
    await rig.report()
    killed = await rig.start("-m", "courier.worker")
    await rig.until("processing")
    await eventually(lambda: rig.stand.seen, within=10)

    killed.kill()
    await killed.wait()
    assert (await rig.ledger())["state"] == "processing"
    await rig.work()

    await rig.until("processed")
    assert len(rig.stand.seen) == 2
    assert await rig.letters() == []


async def test_an_event_delivered_by_a_worker_that_died_before_the_ack_is_not_repeated(
    rig: Rig,
) -> None:
    await rig.report()
    dying = await rig.start(str(Path(dying_worker.__file__)), "ack")
    await dying.communicate()
    assert (await rig.ledger())["state"] == "processed"

    await rig.work()
    await eventually(lambda: is_drained(rig), within=20)

    assert len(rig.stand.seen) == 1


async def test_a_worker_told_to_stop_finishes_what_it_has_begun(rig: Rig) -> None:
    rig.fault(delay_ms=700, times=1)
    await rig.report()
    ending = await rig.start("-m", "courier.worker")
    await eventually(lambda: rig.stand.seen, within=20)

    ending.send_signal(signal.SIGTERM)
    await ending.communicate()

    assert ending.returncode == 0
    assert (await rig.ledger())["state"] == "processed"
    assert await is_drained(rig)


async def test_while_the_queue_is_away_the_gateway_says_503_and_then_goes_on(
    rig: Rig, redis_server: Server
) -> None:
    await rig.report("evt_1")
    await asyncio.to_thread(redis_server.stop)
    try:
        refused = await rig.post(an_event("evt_2"))
        health = await rig.client.get(f"{rig.url}/health")
    finally:
        await asyncio.to_thread(redis_server.start)

    assert (refused.status_code, health.status_code) == (503, 503)
    assert refused.json()["code"] == "INTAKE_UNAVAILABLE"
    assert int(refused.headers["retry-after"]) > 0
    await rig.report("evt_3")
    assert [one["eventId"] for one in await rig.waiting()] == ["evt_1", "evt_3"]


async def test_while_the_office_is_away_nothing_is_given_up(
    rig: Rig, mongodb_server: Server
) -> None:
    rig.fault(delay_ms=500, status=422, message="validation failed")
    await rig.report()
    await rig.work()
    await eventually(lambda: rig.stand.seen, within=10)

    await rig.office.engine()
    await asyncio.to_thread(mongodb_server.stop)
    try:
        await eventually(lambda: is_out_of_reach(rig), within=60)
        assert not await is_drained(rig)
    finally:
        await asyncio.to_thread(mongodb_server.start)

    await rig.until_letter(State.PENDING)
    await eventually(lambda: is_drained(rig), within=20)
