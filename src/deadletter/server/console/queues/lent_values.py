"""Queues of the queue server, and their items, as their screens show them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import NotFound
from deadletter.core.letter import AuditEntry
from deadletter.core.text import clean, cut, format_duration, many, span
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.office.triage.layout import BodySlice, layout
from deadletter.ports import ItemStore
from deadletter.queue_server.model import Item, LeaseQueue, PartitionStats, queue_not_found
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

PAGE: Final = 50
_LISTED: Final = 50  # queues on a page: each is counted
_SCANNED: Final = 1_000  # items that a page of one state looks at
_PREVIEW: Final = 160  # characters of a payload in a list
_GLANCE: Final = 4_096  # bytes of a payload that a list looks at
_ALL: Final = 65_536  # queues
_ACTS: Final = 8


class PartitionRow(Struct, frozen=True, kw_only=True):
    """One partition of a queue."""

    number: int
    waiting: int
    leased: int
    scheduled: int
    failures: int
    waits: str  # on average
    lent_for: str  # on average


class LentRow(Struct, frozen=True, kw_only=True):
    """One queue, with the numbers of all its partitions."""

    queue: LeaseQueue
    path: str
    waiting: int
    leased: int
    scheduled: int
    waits: str
    dead_queue_of: tuple[str, ...] = ()

    def dialog(self, act: str) -> str:
        """Return the path of the dialog of an act on it."""
        return path_to("lent-queue", "dialog", act=act, name=self.queue.name)

    @property
    def limit(self) -> str:
        """Return how often an item may be leased."""
        last = self.queue.last_attempt
        return many(last, "attempt") if last else "no limit"


class LentTable(Struct, frozen=True, kw_only=True):
    """The queues that a person sees."""

    headline: str
    below: str
    rows: tuple[LentRow, ...]
    older: str = ""
    newer: str = ""
    is_on: bool = True


class ItemRow(Struct, frozen=True, kw_only=True):
    """One item of a list."""

    item: Item
    path: str
    state: str
    attempts: str
    preview: str


class LentPage(Struct, frozen=True, kw_only=True):
    """One queue: its numbers, options, partitions, and a list of items."""

    row: LentRow
    facts: tuple[tuple[str, str], ...]
    partitions: tuple[PartitionRow, ...]
    partition: int
    shown: str  # all, leased or scheduled
    items: tuple[ItemRow, ...]
    sees_items: bool
    older: str
    first: str  # the path of the first page, if this is another
    note: str
    acts: tuple[AuditEntry, ...]
    parts_path: str
    tabs: tuple[tuple[str, str, int, bool], ...]


class ItemPage(Struct, frozen=True, kw_only=True):
    """One item with its payload, masked."""

    row: ItemRow
    queue: LeaseQueue
    queue_path: str
    partition: int
    payload: BodySlice
    facts: tuple[tuple[str, str], ...]
    source_path: str
    delete_path: str


def duration(seconds: float) -> str:
    """Return a duration as people write it, exactly: `1h30m`, `45s`."""
    text = format_duration(seconds)
    text = text.removesuffix("0s") if text.endswith("m0s") else text
    return text.removesuffix("0m") if text.endswith("h0m") else text


async def load_lent(context: ServerContext, who: Identity, after: str) -> LentTable:
    """Return a page of queues by name, from `after` on."""
    if context.items is None:
        return LentTable(headline="Lent queues are off", below="", rows=(), is_on=False)
    seen = [one for one in await all_queues(context.items) if who.sees(one.name)]
    there = [one for one in seen if one.name >= after]
    rows = [await _row(context.items, one, seen) for one in there[:_LISTED]]
    older = path_to("lent", after=there[_LISTED].name) if len(there) > _LISTED else ""
    return LentTable(
        headline=many(len(seen), "lent queue") if seen else "No lent queue yet",
        below=_below(rows) if len(rows) == len(seen) else "",
        rows=tuple(rows),
        older=older,
        newer="/lent" if after else "",
    )


async def all_queues(items: ItemStore) -> list[LeaseQueue]:
    """Return all queues by name."""
    return list(await items.queues(limit=_ALL))


async def load_queue(
    context: ServerContext,
    who: Identity,
    name: str,
    *,
    partition: int,
    shown: str,
    after: str,
    sees_items: bool,
) -> LentPage:
    """Return one queue. Raises NotFound if it does not exist, or is hidden."""
    items = _items(context, who, name)
    queue = await items.queue(name)
    seen = [one for one in await all_queues(items) if who.sees(one.name)]
    stats = await items.stats(name)
    row = _summed(queue, stats, seen)
    found: list[Item] = []
    pivot, note = "", ""
    if sees_items:
        found, pivot, note = await _listed(items, queue, partition, shown, after)
    acts: Sequence[AuditEntry] = ()
    if not who.sources:
        acts = await latest_entries(
            context.store, AuditFilter(target=name), before=None, limit=_ACTS
        )
    here = {"partition": str(partition), "list": shown}
    numbers = next((one for one in stats if one.partition == partition), None)
    counts = {
        "all": numbers.total if numbers else 0,
        "leased": numbers.leased if numbers else 0,
        "scheduled": numbers.scheduled if numbers else 0,
    }
    return LentPage(
        row=row,
        facts=_facts(queue, row),
        partitions=tuple(map(_partition, stats)),
        partition=partition,
        shown=shown,
        items=tuple(_item(one, queue, partition, context.clock.now()) for one in found),
        sees_items=sees_items,
        older=path_to("lent", name, **here, after=pivot) if pivot else "",
        first=path_to("lent", name, **here) if after else "",
        note=note,
        acts=tuple(acts),
        parts_path=path_to("lent", name, **here, after=after),
        tabs=tuple(
            (
                "in the queue" if one == "all" else one,
                path_to("lent", name, partition=str(partition), list=one),
                counts[one],
                one == shown,
            )
            for one in ("all", "leased", "scheduled")
        ),
    )


async def load_item(
    context: ServerContext, who: Identity, name: str, *, partition: int, id: str
) -> ItemPage:
    """Return one item. Raises NotFound if it is no longer there: ids change with a return."""
    items = _items(context, who, name)
    queue = await items.queue(name)
    item = await _find(items, name, partition, id)
    if item is None:
        raise NotFound(
            f"item {id[:40]!r} is not in partition {partition} of {name}: it was completed, or"
            " returned under a new id"
        )
    seen = await all_queues(items)
    sources = [one.name for one in seen if one.dead_queue == name and who.sees(one.name)]
    return ItemPage(
        row=_item(item, queue, partition, context.clock.now()),
        queue=queue,
        queue_path=path_to("lent", name, partition=str(partition)),
        partition=partition,
        payload=layout(item.payload),
        facts=_item_facts(item),
        source_path=path_to("lent", sources[0]) if item.source_id and sources else "",
        delete_path=path_to(
            "lent-queue", "dialog", act="items", name=name, partition=str(partition), id=id
        ),
    )


def _items(context: ServerContext, who: Identity, name: str) -> ItemStore:
    if context.items is None or not who.sees(name):
        raise queue_not_found(name)
    return context.items


async def _listed(
    items: ItemStore, queue: LeaseQueue, partition: int, shown: str, after: str
) -> tuple[list[Item], str, str]:
    """Return a page of items, the pivot of the next page, and what is to be said about it."""
    if shown == "scheduled":
        found = list(
            await items.items(queue.name, partition, pivot=after, limit=PAGE + 1, scheduled=True)
        )
    elif shown == "leased":
        some = await items.items(queue.name, partition, pivot=after, limit=_SCANNED + 1)
        found = [one for one in some[:_SCANNED] if one.is_leased]
        if len(found) <= PAGE and len(some) > _SCANNED:
            note = f"Looked at {_SCANNED:,} items; there are more behind them."
            return found, some[_SCANNED].id, note
    else:
        found = list(await items.items(queue.name, partition, pivot=after, limit=PAGE + 1))
    return found[:PAGE], found[PAGE].id if len(found) > PAGE else "", ""


async def _find(items: ItemStore, name: str, partition: int, id: str) -> Item | None:
    for scheduled in (False, True):
        found = await items.items(name, partition, pivot=id, limit=1, scheduled=scheduled)
        if found and found[0].id == id:
            return found[0]
    return None


async def _row(items: ItemStore, queue: LeaseQueue, seen: Sequence[LeaseQueue]) -> LentRow:
    return _summed(queue, await items.stats(queue.name), seen)


def _summed(
    queue: LeaseQueue, stats: Sequence[PartitionStats], seen: Sequence[LeaseQueue]
) -> LentRow:
    counted = [one for one in stats if one.total]
    age = max((one.average_age for one in counted), default=0.0)
    return LentRow(
        queue=queue,
        path=path_to("lent", queue.name),
        waiting=sum(one.total - one.leased for one in stats),
        leased=sum(one.leased for one in stats),
        scheduled=sum(one.scheduled for one in stats),
        waits=span(age) if age else "",
        dead_queue_of=tuple(one.name for one in seen if one.dead_queue == queue.name),
    )


def _partition(one: PartitionStats) -> PartitionRow:
    return PartitionRow(
        number=one.partition,
        waiting=one.total - one.leased,
        leased=one.leased,
        scheduled=one.scheduled,
        failures=one.failures,
        waits=span(one.average_age) if one.average_age else "",
        lent_for=span(one.average_leased_age) if one.average_leased_age else "",
    )


def _facts(queue: LeaseQueue, row: LentRow) -> tuple[tuple[str, str], ...]:
    found = [
        ("lease", f"{duration(queue.lease_timeout)}, then the item returns"),
        ("expiry", f"{duration(queue.expire_timeout)} after it was produced"),
        ("limit", row.limit),
        ("dead queue", queue.dead_queue or "none: what is dead is deleted"),
    ]
    if queue.namespace:
        found.append(("namespace", queue.namespace))
    if queue.reference:
        found.append(("note", queue.reference))
    return tuple(found)


def _item(item: Item, queue: LeaseQueue, partition: int, now: datetime) -> ItemRow:
    last = queue.last_attempt
    state = "leased" if item.is_leased else "scheduled" if item.enqueue_at else "waiting"
    return ItemRow(
        item=item,
        path=path_to("lent", queue.name, partition=str(partition), item=item.id),
        state=state,
        attempts=f"{item.attempts:,} of {last:,}" if last else f"{item.attempts:,}",
        preview=_preview(item.payload),
    )


def _preview(payload: bytes) -> str:
    """Return the beginning of a payload in one line, masked."""
    found = layout(payload[:_GLANCE] if len(payload) > _GLANCE else payload)
    return cut(clean(" ".join(str(line).strip() for line in found.lines[:40])), _PREVIEW)


def _item_facts(item: Item) -> tuple[tuple[str, str], ...]:
    return tuple(
        (term, text)
        for term, text in (
            ("kind", item.kind),
            ("encoding", item.encoding),
            ("reference", item.reference),
            ("size", many(len(item.payload), "byte")),
            ("id where it died", item.source_id or ""),
        )
        if text
    )


def _below(rows: Sequence[LentRow]) -> str:
    if not rows:
        return ""
    dead = sum(row.waiting + row.leased for row in rows if row.dead_queue_of)
    parts = [
        f"{sum(row.waiting for row in rows):,} waiting",
        f"{sum(row.leased for row in rows):,} leased",
        f"{sum(row.scheduled for row in rows):,} scheduled",
    ]
    if dead:
        parts.append(f"{many(dead, 'item')} in dead queues")
    return " · ".join(parts)
