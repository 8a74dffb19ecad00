"""Items that die are counted and logged, each with its true reason."""

import asyncio
import logging

from msgspec import structs
from prometheus_client import CollectorRegistry

from deadletter.core.events import ItemDeleted
from deadletter.observe.logs import LEVELS, fields_of, log_events, name_of
from deadletter.observe.metrics import Metrics
from deadletter.queue_server.model import ItemRetry, LeaseQueue, RetryBatch
from queue_server.lending_rig import JOBS, in_virtual_time, lending

DEAD = LeaseQueue(name="dead", lease_timeout=60.0, expire_timeout=3600.0)


@in_virtual_time
async def test_deleted_items_are_warned_about_and_counted_by_reason() -> None:
    async with lending(structs.replace(JOBS, expire_timeout=120.0)) as rig:
        await rig.produce(b"expired")
        await asyncio.sleep(130.0)
        await rig.produce(b"asked")
        item = await rig.leased()
        await rig.lending.retry("jobs", RetryBatch(0, (ItemRetry(item.id, dead=True),)))

    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for event in rig.events:
        metrics(event)

    def counted(death: str, outcome: str) -> float | None:
        labels = {"queue": "jobs", "death": death, "outcome": outcome}
        return registry.get_sample_value("dlq_dead_items_total", labels)

    assert (counted("expired", "deleted"), counted("asked", "deleted")) == (1.0, 1.0)
    assert counted("expired", "moved") is None
    warnings = [e for e in rig.events if LEVELS[type(e)] == logging.WARNING]
    assert [name_of(event) for event in warnings] == ["item-deleted"] * 2
    assert fields_of(warnings[1])["item_id"] == item.id


@in_virtual_time
async def test_every_deleted_item_is_logged_by_its_id() -> None:
    """However many there are: the line is all that is left of an item."""
    lines: list[tuple[str, object]] = []
    async with lending(structs.replace(JOBS, expire_timeout=120.0)) as rig:
        log = log_events(
            rig.clock, log=lambda _, name, fields: lines.append((name, fields.get("item_id")))
        )
        await rig.produce(*[b"x"] * 300)
        known = [item.id for item in await rig.store.items("jobs", 0, limit=300)]
        await asyncio.sleep(130.0)
        for event in rig.events:
            log(event)

    assert lines == [("item-deleted", id_) for id_ in known]


@in_virtual_time
async def test_a_deletion_is_reported_although_its_client_has_gone() -> None:
    async with lending(structs.replace(JOBS, max_attempts=1)) as rig:
        await rig.produce(b"x")
        item = await rig.leased()
        rig.store.takes = 1.0
        asked = asyncio.create_task(rig.lending.retry("jobs", RetryBatch(0, (ItemRetry(item.id),))))
        await asyncio.sleep(0.5)
        asked.cancel()
        await asyncio.sleep(10.0)

        assert [event.item_id for event in rig.seen(ItemDeleted)] == [item.id]


@in_virtual_time
async def test_moved_items_are_counted_apart() -> None:
    async with lending(DEAD, structs.replace(JOBS, dead_queue="dead")) as rig:
        await rig.produce(b"asked")
        item = await rig.leased()
        await rig.lending.retry("jobs", RetryBatch(0, (ItemRetry(item.id, dead=True),)))

    registry = CollectorRegistry()
    metrics = Metrics(registry)
    for event in rig.events:
        metrics(event)

    labels = {"queue": "jobs", "death": "asked", "outcome": "moved"}
    assert registry.get_sample_value("dlq_dead_items_total", labels) == 1.0
