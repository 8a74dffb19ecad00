"""Items as they are stored: listed, imported, deleted."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET

from deadletter.core.items import Item
from deadletter.lending import Lending

from . import limits
from .acts import Act
from .said import (
    DeleteItems,
    Imported,
    ImportItems,
    Items,
    ListItems,
    StorageItem,
)
from .status import DONE


async def list_items(lending: Lending, asked: ListItems) -> Items:
    """Items in their order, from the pivot on."""
    return Items(await _listed(lending, asked, scheduled=False))


async def list_scheduled(lending: Lending, asked: ListItems) -> Items:
    """Items that are not due yet."""
    return Items(await _listed(lending, asked, scheduled=True))


async def import_items(lending: Lending, asked: ImportItems) -> Act:
    """Add items as they are."""
    queue = limits.queue_name(asked.queue_name)
    partition = limits.partition(asked.partition)
    now = lending.clock.now()
    items = [_item(item, now) for item in asked.items]
    added = await lending.import_items(queue, partition, items)
    detail = f"{len(added)} of {len(items)} items added to partition {partition}"
    return Act(queue, detail, Imported(_stored(added)))


async def delete_items(lending: Lending, asked: DeleteItems) -> Act:
    """Delete items, leased or not; those that are gone already do not matter."""
    queue = limits.queue_name(asked.queue_name)
    partition = limits.partition(asked.partition)
    ids = [limits.text("id", one) for one in asked.ids]
    gone = await lending.store.delete_items(queue, partition, ids)
    detail = f"{gone} of {len(ids)} items deleted from partition {partition}"
    return Act(queue, detail, DONE)


async def _listed(
    lending: Lending, asked: ListItems, *, scheduled: bool
) -> list[StorageItem]:
    found = await lending.store.items(
        limits.queue_name(asked.queue_name),
        limits.partition(asked.partition),
        pivot=limits.text("pivot", asked.pivot),
        limit=limits.listed(asked.limit),
        scheduled=scheduled,
    )
    return _stored(found)


def _item(given: StorageItem, now: datetime) -> Item:
    return Item(
        id=limits.text("id", given.id),
        payload=given.payload,
        reference=limits.reference(given.reference),
        encoding=limits.text("encoding", given.encoding),
        kind=limits.text("kind", given.kind),
        attempts=limits.max_attempts(given.attempts),
        max_attempts=limits.max_attempts(given.max_attempts),
        source_id=limits.text("source_id", given.source_id) or None,
        is_leased=given.is_leased,
        lease_deadline=limits.moment(given.lease_deadline),
        expire_deadline=limits.moment(given.expire_deadline),
        enqueue_at=limits.moment(given.enqueue_at),
        created_at=limits.moment(given.created_at) or now,
        updated_at=limits.moment(given.updated_at) or now,
    )


def _stored(items: Sequence[Item]) -> list[StorageItem]:
    return [
        StorageItem(
            id=item.id,
            source_id=item.source_id or "",
            is_leased=item.is_leased,
            lease_deadline=item.lease_deadline or UNSET,
            expire_deadline=item.expire_deadline or UNSET,
            created_at=item.created_at,
            updated_at=item.updated_at,
            enqueue_at=item.enqueue_at or UNSET,
            attempts=item.attempts,
            max_attempts=item.max_attempts,
            reference=item.reference,
            encoding=item.encoding,
            kind=item.kind,
            payload=item.payload,
        )
        for item in items
    ]
