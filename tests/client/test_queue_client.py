import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from client.serving import Served
from deadletter.client import QueueClient
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.queue_server.model import Item, ItemRetry, LeaseQueue, NewItem

ORDERS = LeaseQueue(name="orders", lease_timeout=60, expire_timeout=3600)


async def test_items_are_produced_leased_and_completed(queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)
    await queue.produce(
        "orders", [NewItem(bytes(range(256)), "r", "binary", "order"), NewItem(b"")]
    )

    lent = await queue.lease("orders", limit=10, wait=5)
    await queue.complete("orders", lent.partition, lent.ids)

    first = lent.items[0]
    assert (first.payload, first.attempts) == (bytes(range(256)), 1)
    assert (first.reference, first.encoding, first.kind) == ("r", "binary", "order")
    assert first.lease_deadline is not None
    assert first.lease_deadline > datetime.now(UTC)
    assert sum(one.total for one in await queue.stats("orders")) == 0


async def test_an_item_is_given_back_or_given_up(queue: QueueClient) -> None:
    await queue.create_queue(structs.replace(ORDERS, name="dead"))
    await queue.create_queue(structs.replace(ORDERS, dead_queue="dead"))
    await queue.produce("orders", [NewItem(b"1")])

    lent = await queue.lease("orders", wait=5)
    await queue.retry("orders", lent.partition, [ItemRetry(lent.ids[0])])
    again = await queue.lease("orders", wait=5)
    await queue.retry("orders", again.partition, [ItemRetry(again.ids[0], dead=True)])
    dead = await queue.lease("dead", wait=5)

    assert (again.items[0].attempts, dead.items[0].payload) == (2, b"1")


async def test_an_item_for_later_waits(queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)
    at = datetime.now(UTC) + timedelta(hours=1)
    await queue.produce("orders", [NewItem(b"later", enqueue_at=at)])

    with_nothing = await queue.lease("orders", wait=0.05)
    scheduled = await queue.items("orders", scheduled=True)

    assert with_nothing.items == ()
    assert [item.payload for item in scheduled] == [b"later"]
    assert [one.scheduled for one in await queue.stats("orders")] == [1]


async def test_a_waiting_lease_is_woken_by_a_produce(queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)

    async with asyncio.timeout(20):
        leasing = asyncio.create_task(queue.lease("orders", wait=60))
        await asyncio.sleep(0)
        await queue.produce("orders", [NewItem(b"1")])
        lent = await leasing

    assert [item.payload for item in lent.items] == [b"1"]


async def test_one_client_may_lease_several_times_at_once(queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)

    async with asyncio.timeout(20):
        leases = [asyncio.create_task(queue.lease("orders", wait=60)) for _ in "123"]
        await queue.produce("orders", [NewItem(b"%d" % n) for n in range(3)])
        lent = await asyncio.gather(*leases)

    assert sorted(one.items[0].payload for one in lent) == [b"0", b"1", b"2"]


async def test_queues_are_listed_changed_and_deleted(queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)
    changed = structs.replace(ORDERS, max_attempts=3, lease_timeout=1.5, reference="ours")

    await queue.update_queue(changed)

    (found,) = await queue.queues()
    assert found == structs.replace(
        changed, created_at=found.created_at, updated_at=found.updated_at
    )
    assert await queue.queue("orders") == found
    await queue.delete_queue("orders")
    with pytest.raises(NotFound):
        await queue.queue("orders")


async def test_reasons_go_into_the_audit(queue: QueueClient, server: Served) -> None:
    why = "moved to\n  Köln \x1b[2J"
    await queue.create_queue(ORDERS, reason="new")
    await queue.update_queue(ORDERS, reason=why)
    now = datetime.now(UTC)
    new = Item(id="", payload=b"1", created_at=now, updated_at=now)
    (item,) = await queue.import_items("orders", [new], reason="brought")
    await queue.delete_items("orders", [item.id], reason="not that")
    await queue.clear("orders", waiting=True, reason="swept")
    await queue.delete_queue("orders", reason="gone")

    entries = server.run(server.context.store.audit())
    told = [(entry.action, entry.reason) for entry in entries]
    assert told[-6:] == [
        ("queues.create", "new"),
        ("queues.update", "moved to Köln \\x1b[2J"),
        ("storage/items.import", "brought"),
        ("storage/items.delete", "not that"),
        ("queue.clear", "swept"),
        ("queues.delete", "gone"),
    ]


async def test_waiting_items_can_be_listed_and_cleared(queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)
    await queue.produce("orders", [NewItem(b"1"), NewItem(b"2")])

    stored = await queue.items("orders")
    await queue.clear("orders", waiting=True)

    assert [item.payload for item in stored] == [b"1", b"2"]
    assert await queue.items("orders") == []


async def test_items_are_brought_in_once_and_deleted(queue: QueueClient) -> None:
    await queue.create_queue(structs.replace(ORDERS, name="dead"))
    await queue.create_queue(structs.replace(ORDERS, partitions=2))
    await queue.produce("orders", [NewItem(b"1", "r", "binary", "order")])
    (item,) = await queue.items("orders")
    assert item.source_id is None
    from_there = structs.replace(item, source_id=item.id)

    (brought,) = await queue.import_items("dead", [from_there])
    again = await queue.import_items("dead", [from_there])
    elsewhere = await queue.import_items("orders", [item], partition=1)
    await queue.delete_items("orders", [elsewhere[0].id, "0" * 16], partition=1)

    assert (brought.source_id, brought.payload, again) == (item.id, b"1", [])
    assert await queue.items("dead") == [brought]
    assert [one.total for one in await queue.stats("orders")] == [1, 0]


async def test_refusals_are_errors_of_ours(server: Served, queue: QueueClient) -> None:
    await queue.create_queue(ORDERS)
    await queue.produce("orders", [NewItem(b"1")])
    (item,) = await queue.items("orders")

    with pytest.raises(Conflict):
        await queue.create_queue(ORDERS)
    with pytest.raises(NotFound):
        await queue.lease("nowhere", wait=1)
    with pytest.raises(Conflict, match="leased"):
        await queue.complete("orders", 0, [item.id])
    with pytest.raises(ConfigError):
        await queue.complete("orders", 0, ["unknown"])
    with pytest.raises(ConfigError, match="exist"):
        await queue.create_queue(structs.replace(ORDERS, name="x", dead_queue="y"))
