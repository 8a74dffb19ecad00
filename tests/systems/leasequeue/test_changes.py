"""A queue is changed during an incident: the change applies to the items that are there."""

from datetime import UTC, datetime, timedelta

import pytest

from deadletter import LimitMode
from deadletter.testing.fakes import eventually
from systems.leasequeue.rig import WITHIN, Queues, payloads


@pytest.mark.parametrize(
    "change", [{"max_attempts": 5}, {"max_attempts": 0}, {"limit_mode": LimitMode.EXCEEDED}]
)
async def test_a_raised_limit_saves_the_items_in_the_queue(
    queues: Queues, change: dict[str, object]
) -> None:
    await queues.create_pair(max_attempts=2)
    await queues.produce(b"second attempt", b"first attempt")
    again, _ = await queues.leases()
    await queues.retry(again)
    last = await queues.lease()

    await queues.update("jobs", **change)
    await queues.retry(last)

    assert await queues.items("dead") == []
    saved = await queues.lease()
    assert (saved.payload, saved.attempts) == (b"second attempt", 3)


async def test_a_raised_limit_saves_items_whose_consumers_never_answer(queues: Queues) -> None:
    await queues.create_pair(max_attempts=1, lease_timeout=0.5)
    await queues.produce(b"abandoned")
    await queues.lease()

    await queues.update("jobs", max_attempts=3)
    saved = await queues.lease()

    assert saved.attempts == 2
    assert await queues.items("dead") == []


async def test_max_attempts_can_be_unlimited_again(queues: Queues) -> None:
    await queues.create_pair(max_attempts=1)
    await queues.produce(b"patient")

    await queues.update("jobs", max_attempts=0)

    assert (await queues.info()).max_attempts == 0
    for attempt in range(1, 6):
        item = await queues.lease()
        assert item.attempts == attempt
        await queues.retry(item)
    assert await queues.items("dead") == []


async def test_a_lowered_limit_moves_items_that_have_had_their_attempts(queues: Queues) -> None:
    await queues.create_pair()
    await queues.produce(b"twice", b"once", b"later")
    for item in await queues.leases():
        await queues.retry(item)
    twice, _, later = await queues.leases()
    await queues.retry(twice)
    await queues.retry(later, retry_at=datetime.now(UTC) + timedelta(hours=1))

    await queues.update("jobs", max_attempts=2)

    await eventually(lambda: _holds(queues, "dead", 2), within=WITHIN)
    assert sorted(payloads(await queues.items("dead"))) == [b"later", b"twice"]
    assert payloads(await queues.items()) == [b"once"]  # leased: it has its attempt


async def _holds(queues: Queues, queue: str, count: int) -> bool:
    return await queues.count(queue) == count


async def test_a_changed_dead_queue_is_where_items_go_from_then_on(queues: Queues) -> None:
    await queues.create_pair()
    await queues.create("other")
    await queues.produce(b"first", b"second")
    first, second = await queues.leases()
    await queues.retry(first, dead=True)

    await queues.update("jobs", dead_queue="other")
    await queues.retry(second, dead=True)

    assert payloads(await queues.items("dead")) == [b"first"]
    assert payloads(await queues.items("other")) == [b"second"]


async def test_a_dead_queue_can_be_removed(queues: Queues) -> None:
    await queues.create_pair()
    await queues.produce(b"first", b"second")
    first, second = await queues.leases()
    await queues.retry(first, dead=True)

    await queues.update("jobs", dead_queue=None)
    await queues.retry(second, dead=True)

    assert (await queues.info()).dead_queue is None
    assert await queues.items() == []
    assert payloads(await queues.items("dead")) == [b"first"]


async def test_the_limit_that_items_show_is_that_of_their_queue(queues: Queues) -> None:
    await queues.create(max_attempts=2)
    await queues.produce(b"x")

    await queues.update("jobs", max_attempts=7)

    (item,) = await queues.items()
    assert item.max_attempts == 7
