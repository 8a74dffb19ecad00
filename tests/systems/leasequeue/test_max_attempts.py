"""
Items that have used up their attempts: the acceptance test of the plan, line by line.

The plan's text wants `max_attempts` = 2 to allow a third lease: that is `limit_mode`
"exceeded". By default the last of `max_attempts` attempts decides.
"""

import pytest

from deadletter import LimitMode
from deadletter.client import LeasedItem
from deadletter.queue_server.model import Item, ItemRetry
from systems.leasequeue.rig import Queues

MODES = pytest.mark.parametrize("limit_mode", LimitMode)


async def moved(queues: Queues, **item: str) -> tuple[LeasedItem, Item]:
    """Have an item use up its attempts; return it as it was and as it is in `dead`."""
    await queues.produce(b"poison", **item)
    last = await queues.lease()
    await queues.retry(last)
    (dead,) = await queues.items("dead")
    return last, dead


async def test_two_retries_stay_and_the_third_moves(queues: Queues) -> None:
    """R2.118, literally: lease and retry (attempts 1), again (2), and the third moves it."""
    await queues.create_pair(max_attempts=2, limit_mode=LimitMode.EXCEEDED)
    await queues.produce(b"poison")

    for attempts in (1, 2):
        await queues.retry(await queues.lease())
        (stays,) = await queues.items()
        assert (stays.attempts, stays.is_leased) == (attempts, False)
        assert await queues.items("dead") == []
    third = await queues.lease()
    assert third.attempts == 3
    assert await queues.items("dead") == []
    await queues.retry(third)

    assert await queues.items() == []
    (dead,) = await queues.items("dead")
    assert dead.source_id == third.id


async def test_by_default_the_last_of_max_attempts_decides(queues: Queues) -> None:
    await queues.create_pair(max_attempts=2)
    await queues.produce(b"poison")

    await queues.retry(await queues.lease())
    assert await queues.items("dead") == []
    await queues.retry(await queues.lease())

    assert len(await queues.items("dead")) == 1
    assert await queues.items() == []


@MODES
async def test_the_limit_mode_is_an_option_that_is_listed(
    queues: Queues, limit_mode: LimitMode
) -> None:
    await queues.create(max_attempts=2, limit_mode=limit_mode)
    assert (await queues.info()).limit_mode is limit_mode

    await queues.update("jobs", reference="changed")  # ...and stays
    assert (await queues.info()).limit_mode is limit_mode
    await queues.update("jobs", limit_mode=LimitMode.REACHED)
    assert (await queues.info()).limit_mode is LimitMode.REACHED


@MODES
async def test_lost_leases_count_like_retries(queues: Queues, limit_mode: LimitMode) -> None:
    await queues.create_pair(max_attempts=1, limit_mode=limit_mode, lease_timeout=0.3)
    await queues.produce(b"poison")
    last = 1 + (limit_mode is LimitMode.EXCEEDED)

    attempts = [(await queues.lease()).attempts for _ in range(last)]
    await queues.lease("dead")  # woken by the move

    assert attempts == list(range(1, last + 1))
    assert await queues.items() == []


async def test_items_over_max_attempts_are_listed_in_the_dead_queue(queues: Queues) -> None:
    """R2.1, R2.21."""
    await queues.create_pair(max_attempts=1)

    _, dead = await moved(queues, reference="r", encoding="e", kind="k")

    assert (dead.payload, dead.reference, dead.encoding, dead.kind) == (b"poison", "r", "e", "k")


async def test_the_source_id_is_the_id_in_the_source(queues: Queues) -> None:
    """R2.29, R2.105, R2.119."""
    await queues.create_pair(max_attempts=1)

    last, dead = await moved(queues)

    assert dead.source_id == last.id


async def test_the_item_is_gone_from_its_source(queues: Queues) -> None:
    """R2.113, R2.120: also for those who lease or count, and from no other partition."""
    await queues.create_pair(max_attempts=1)
    await queues.produce(b"other")
    other = await queues.lease()
    await moved(queues)

    assert [item.id for item in await queues.items()] == [other.id]
    assert await queues.leases(wait=0.2) == ()
    assert await queues.count() == 1


async def test_the_dead_item_has_an_id_of_its_own(queues: Queues) -> None:
    """R2.28, R2.106, R2.121: the old id names nothing any more."""
    await queues.create_pair(max_attempts=1)

    last, dead = await moved(queues)

    assert dead.id not in {last.id, ""}
    await queues.client.delete_items(queues.name("dead"), [last.id])
    assert [item.id for item in await queues.items("dead")] == [dead.id]


async def test_the_dead_item_is_not_leased(queues: Queues) -> None:
    """R2.107: it was when it died."""
    await queues.create_pair(max_attempts=1)

    _, dead = await moved(queues)

    assert not dead.is_leased
    (stats,) = await queues.client.stats(queues.name("dead"))
    assert stats.leased == 0
    assert (await queues.lease("dead", wait=5)).id == dead.id


async def test_the_dead_item_has_no_lease_deadline(queues: Queues) -> None:
    """R2.108."""
    await queues.create_pair(max_attempts=1)

    last, dead = await moved(queues)

    assert last.lease_deadline is not None
    assert dead.lease_deadline is None


async def test_attempts_of_the_dead_item_count_from_zero(queues: Queues) -> None:
    """R2.109."""
    await queues.create_pair(max_attempts=1)

    last, dead = await moved(queues)

    assert (last.attempts, dead.attempts) == (1, 0)
    assert (await queues.lease("dead")).attempts == 1


async def test_each_item_is_moved_to_the_dead_queue_of_its_own_queue(queues: Queues) -> None:
    """R2.99."""
    for name in ("one", "two"):
        await queues.create(f"dead-{name}")
        await queues.create(name, dead_queue=f"dead-{name}", max_attempts=1)
        await queues.produce(name.encode(), queue=name)
        await queues.retry(await queues.lease(name), queue=name)

    assert [item.payload for item in await queues.items("dead-one")] == [b"one"]
    assert [item.payload for item in await queues.items("dead-two")] == [b"two"]


async def test_an_item_is_deleted_from_the_partition_it_was_in(queues: Queues) -> None:
    """R2.102."""
    await queues.create_pair(max_attempts=1, partitions=3)
    for n in range(3):
        await queues.produce(b"%d" % n)
    name = queues.name("jobs")
    leases = [await queues.client.lease(name) for _ in range(3)]
    by_partition = {lease.partition: lease.items[0] for lease in leases}
    died = by_partition[1]

    await queues.client.retry(name, 1, [ItemRetry(died.id)])

    assert [len(await queues.items("jobs", n)) for n in range(3)] == [1, 0, 1]
    assert [item.source_id for item in await queues.items("dead")] == [died.id]
