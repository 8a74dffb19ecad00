"""What producers and consumers ask: produce, lease, complete, retry."""

import asyncio

from msgspec import UNSET

from deadletter.core.errors import ConfigError
from deadletter.core.items import (
    Again,
    Completion,
    Item,
    Leased,
    NewItem,
    Retrial,
)
from deadletter.lending import Lending

from . import limits
from .said import Complete, Lease, LeaseItem, Lent, Produce, ProduceItem, Reply, Retry
from .status import DONE


async def produce(lending: Lending, asked: Produce) -> Reply:
    """Add items, all of them or none."""
    queue = limits.queue_name(asked.queue_name)
    within = limits.request_timeout(asked.request_timeout)
    limits.batch("items", asked.items)
    items = [_new_item(item) for item in asked.items]
    await lending.produce(queue, items, within=within)
    return DONE


def lease(lending: Lending, asked: Lease) -> asyncio.Future[Leased]:
    """Wait for items; cancel this when the client has gone."""
    queue = limits.queue_name(asked.queue_name)
    within = limits.request_timeout(asked.request_timeout)
    want = limits.batch_size("batch_size", asked.batch_size)
    if not asked.client_id:
        raise ConfigError("invalid client_id; it cannot be empty")
    return lending.lease(queue, asked.client_id, want, within=within)


def lent(queue: str, leased: Leased) -> Lent:
    """What somebody who waited is answered."""
    return Lent(queue, leased.partition, [_lent_item(item) for item in leased.items])


async def complete(lending: Lending, asked: Complete) -> Reply:
    """Forget leased items, all of them or none."""
    queue = limits.queue_name(asked.queue_name)
    within = limits.request_timeout(asked.request_timeout)
    limits.batch("ids", asked.ids)
    partition = limits.partition(asked.partition)
    ids = tuple(limits.text("id", one) for one in asked.ids)
    await lending.complete(queue, Completion(partition, ids), within=within)
    return DONE


async def retry(lending: Lending, asked: Retry) -> Reply:
    """Give leased items back, all of them or none."""
    queue = limits.queue_name(asked.queue_name)
    limits.batch("items", asked.items)
    partition = limits.partition(asked.partition)
    items = tuple(
        Again(limits.text("id", item.id), limits.moment(item.retry_at), item.dead)
        for item in asked.items
    )
    await lending.retry(queue, Retrial(partition, items))
    return DONE


def _new_item(item: ProduceItem) -> NewItem:
    payload = item.payload or item.utf8.encode()
    # Most have nothing else, and each look costs as much as the whole item.
    if not (item.reference or item.encoding or item.kind or item.enqueue_at):
        return NewItem(payload)
    return NewItem(
        payload,
        limits.reference(item.reference),
        limits.text("encoding", item.encoding),
        limits.text("kind", item.kind),
        limits.moment(item.enqueue_at),
    )


def _lent_item(item: Item) -> LeaseItem:
    return LeaseItem(
        item.encoding,
        item.kind,
        item.reference,
        item.id,
        item.attempts,
        item.lease_deadline or UNSET,
        item.payload,
    )
