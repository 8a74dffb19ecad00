"""How an item arrives that was somewhere else before."""

from datetime import datetime, timedelta

from msgspec import Struct

from .item_life import dies_at, scheduled_for
from .item_plans import ItemState
from .items import Item, LeaseQueue


class Arrival(Struct, frozen=True):
    """Where it is then, and until when."""

    state: ItemState
    expires: datetime | None
    enqueue_at: datetime | None
    due: datetime | None


def arrival(queue: LeaseQueue, item: Item, now: datetime, *, mortal: bool) -> Arrival:
    """
    An item as it is, with what it lacks from its new queue.

    Nothing lives for ever but what is in a dead queue, and no lease lasts for ever.
    """
    life = timedelta(seconds=queue.expire_timeout)
    expires = (item.expire_deadline or now + life) if mortal else None
    if item.is_leased:
        lease = timedelta(seconds=queue.lease_timeout)
        until = item.lease_deadline or now + lease
        return Arrival(ItemState.LEASED, expires, None, until)
    dies = dies_at(item.attempts, queue.max_attempts, expires, now, mortal=mortal)
    at = scheduled_for(item.enqueue_at, now)
    if at is None:
        return Arrival(ItemState.WAITING, expires, None, dies)
    return Arrival(ItemState.SCHEDULED, expires, at, min(at, dies or at))
