"""dlq produce, lease, complete, retry and dlq queues lent: clients of the queue server."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs
from rich.console import RenderableType
from rich.table import Table

from deadletter.cli.desk import AtDesk, Desk
from deadletter.cli.options import AtMost, Count, Flag, OptionalText, Reason, Yes, given_body
from deadletter.cli.ui import (
    NARROW,
    Name,
    ago,
    ask_to_confirm,
    cell,
    firm_column,
    local,
    many,
    name_column,
    number,
    number_column,
    one_by_one,
    span,
    table,
    text_column,
)
from deadletter.client import Lease, QueueClient
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.policy import LimitMode
from deadletter.core.text import clean, format_duration, parse_duration

from .model import Item, ItemRetry, LeaseQueue, NewItem, PartitionStats

Delay: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0))]
Partition: TypeAlias = Annotated[
    int, Parameter(name=["--partition", "-p"], validator=Number(gte=0))
]
Wait: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0.01, lte=900))]
Batch: TypeAlias = Annotated[
    int, Parameter(name=["--limit", "-n"], validator=Number(gte=1, lte=1000))
]
_SHOWN_CHARACTERS = 60  # characters of what is in an item


async def produce(
    queue: str,
    body: str | None = None,
    /,
    *,
    file: Annotated[
        Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)
    ] = None,
    reference: OptionalText = "",
    encoding: OptionalText = "",
    kind: OptionalText = "",
    delay: Delay = 0.0,
    desk: AtDesk,
) -> None:
    """
    Add an item to a queue of the queue server.

    Args:
        queue: Name of the queue; create it with `dlq queues lent create`.
        body: Content of the item as text. Use --file for other content.
        file: File with the content; - is standard input.
        reference: Note for people, such as an order number.
        encoding: Encoding of the content, for the consumer.
        kind: Kind of the content, for the consumer.
        delay: Seconds before the item can be leased.
    """
    item = NewItem(
        payload=given_body(body, file),
        reference=reference,
        encoding=encoding,
        kind=kind,
        enqueue_at=_later(desk, delay),
    )
    async with desk.queue_server() as server:
        await server.produce(queue, [item])
    if desk.as_json:
        desk.document({"queue": queue, "produced": 1})
    else:
        desk.tell(f"1 item is in {queue}.")


async def lease(
    queue: str, /, *, limit: Batch = 1, wait: Wait = 30.0, raw: Flag = False, desk: AtDesk
) -> None:
    """
    Lease items of a queue; they return to the queue if they are not completed in time.

    With --json, print one line per item: id, partition, and the content as base64.

    Args:
        queue: Name of the queue.
        limit: Maximum number of items.
        wait: Seconds to wait for the first item.
        raw: Write the content of one item unchanged to a file or a pipe.
    """
    if raw and (limit != 1 or sys.stdout.isatty()):
        raise ConfigError("--raw writes one item to a file or a pipe: use -n 1 and redirect it")
    async with desk.queue_server() as server:
        leased = await server.lease(queue, limit=limit, wait=wait)
    if raw:
        if not leased.items:
            raise NotFound(f"nothing to lease in {queue}")
        sys.stdout.buffer.write(leased.items[0].payload)
        sys.stdout.buffer.flush()
        location = f"{leased.items[0].id} --partition {leased.partition}"
        desk.err.print(clean(location), soft_wrap=True)
        return
    if desk.as_json:
        for item in leased.items:
            desk.document({"queue": queue, "partition": leased.partition, "item": item})
        return
    if leased.items:
        desk.show(_table(leased))
    else:
        desk.tell(f"Nothing to lease in {queue}.")


def _table(leased: Lease) -> Table:
    shown = table()
    firm_column(shown, "id")
    number_column(shown, "partition")
    number_column(shown, "attempt")
    firm_column(shown, "until")
    text_column(shown, "item")
    for item in leased.items:
        until = item.lease_deadline
        shown.add_row(
            cell(item.id, "cyan"),
            number(leased.partition),
            number(item.attempts),
            cell(local(until) if until else ""),
            cell(start_of(item.payload)),
        )
    return shown


def start_of(payload: bytes) -> str:
    """Return the start of a payload, as much as fits into a line."""
    return payload[:_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace")


async def complete(queue: str, /, *ids: str, partition: Partition = 0, desk: AtDesk) -> None:
    """
    Complete leased items: all of them or none.

    Args:
        queue: Name of the queue.
        ids: Ids of items, as shown by `dlq lease`.
        partition: Partition of the items, as shown by `dlq lease`.
    """
    _some(ids)
    async with desk.queue_server() as server:
        await server.complete(queue, partition, ids)
    _done(desk, len(ids), "completed")


async def retry(
    queue: str,
    /,
    *ids: str,
    partition: Partition = 0,
    delay: Delay = 0.0,
    dead: Flag = False,
    desk: AtDesk,
) -> None:
    """
    Return leased items to the queue: all of them or none.

    Args:
        queue: Name of the queue.
        ids: Ids of items, as shown by `dlq lease`.
        partition: Partition of the items, as shown by `dlq lease`.
        delay: Seconds before the items can be leased again.
        dead: Move the items to the dead queue, whatever attempts remain.
    """
    _some(ids)
    at = _later(desk, delay)
    async with desk.queue_server() as server:
        items = [ItemRetry(id=id_, retry_at=at, dead=dead) for id_ in ids]
        await server.retry(queue, partition, items)
    _done(desk, len(ids), "declared dead" if dead else "returned")


def _some(ids: tuple[str, ...]) -> None:
    if not ids:
        raise ConfigError("no item ids given: pass the ids shown by `dlq lease`")


def _later(desk: Desk, delay: float) -> datetime | None:
    return desk.clock.now() + timedelta(seconds=delay) if delay else None


def _done(desk: Desk, count: int, what: str) -> None:
    if desk.as_json:
        desk.document({"items": count, "done": what})
    else:
        desk.tell(f"{many(count, 'item')} {what}.")


_SHOWN: Final = 50  # items without --limit
_PAGE: Final = 100  # items in one request; they may be large
_ROOMY: Final = 100  # columns of a terminal with room for the source of an item


async def stats(name: str, /, *, desk: AtDesk) -> None:
    """
    Count the items of a queue by partition; ages are averages.

    Args:
        name: Name of the queue.
    """
    async with desk.queue_server() as server:
        found = await server.stats(name)
    if desk.as_json:
        for one in found:
            desk.document(one)
        return
    shown = table()
    for column in ("partition", "waiting", "leased", "scheduled"):
        number_column(shown, column)
    firm_column(shown, "age")
    firm_column(shown, "leased for")
    for one in found:
        shown.add_row(
            f"{one.partition}",
            number(one.total - one.leased, "bold"),
            number(one.leased, "yellow"),
            number(one.scheduled),
            cell(span(one.average_age) if one.total else ""),
            cell(span(one.average_leased_age) if one.leased else ""),
        )
    desk.show(shown)


async def items(
    name: str,
    /,
    *,
    scheduled: Flag = False,
    partition: Partition = 0,
    limit: AtMost = None,
    desk: AtDesk,
) -> None:
    """
    List the items of a queue without leasing them.

    With --json, print one line per item, with the content as base64.

    Args:
        name: Name of the queue.
        scheduled: List scheduled items instead.
        partition: Partition to list.
        limit: Maximum number of items (default: 50, or all with --json).
    """
    most = limit if desk.as_json else limit or _SHOWN
    found: list[Item] = []
    count, is_cut = 0, False
    async with (
        desk.queue_server() as server,
        aclosing(_listed(server, name, partition, scheduled=scheduled)) as listed,
    ):
        async for item in listed:
            is_cut = count == most
            if is_cut:
                break
            count += 1
            if desk.as_json:
                desk.document(item)
            else:
                found.append(item)
    if found:
        desk.show(_items_table(found, desk.clock.now(), desk.out.width))
    elif not desk.as_json:
        where = "scheduled for" if scheduled else "in"
        desk.tell(f"No items are {where} partition {partition} of {name}.")
    if is_cut:
        desk.warn(f"Only {many(count, 'item')} shown: use -n to show more.")


async def clear(
    name: str,
    /,
    *,
    scheduled: Flag = False,
    leased: Flag = False,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> None:
    """
    Delete the waiting items of a queue for good. The queue stays.

    Args:
        name: Name of the queue.
        scheduled: Delete scheduled items instead.
        leased: Delete leased items as well; consumers can no longer complete them.
        reason: Reason for the audit.
        yes: Do not ask for confirmation.
    """
    which = "scheduled" if scheduled else "waiting or leased" if leased else "waiting"
    async with desk.queue_server() as server:
        found = await server.stats(name)
        count = sum(_meant(one, scheduled=scheduled, leased=leased) for one in found)
        what = f"delete {many(count, 'item')} {which} in {name}"
        ask_to_confirm(desk, what, yes=yes, count=count)
        await server.clear(
            name, waiting=not scheduled, scheduled=scheduled, destructive=leased, reason=reason
        )
        left = sum(one.total + one.scheduled for one in await server.stats(name))
    if desk.as_json:
        desk.document({"queue": name, "left": left})
    else:
        desk.tell(f"Deleted the items {which} in {name}; {many(left, 'item')} left.")


def _listed(
    server: QueueClient, name: str, partition: int, *, scheduled: bool
) -> AsyncGenerator[Item]:
    """Yield all items of a partition in order."""
    return one_by_one(
        lambda pivot, size: server.items(
            name, partition, pivot=pivot, limit=size, scheduled=scheduled
        ),
        lambda item: item.id,
        size=_PAGE,
    )


def _meant(one: PartitionStats, *, scheduled: bool, leased: bool) -> int:
    if scheduled:
        return one.scheduled
    return one.total if leased else one.total - one.leased


def _items_table(found: Sequence[Item], now: datetime, width: int) -> Table:
    is_scheduled = any(item.enqueue_at for item in found)
    with_source = width >= _ROOMY and any(item.source_id for item in found)
    is_narrow = width < NARROW
    shown = table()
    firm_column(shown, "id")
    if with_source:
        firm_column(shown, "came from")
    firm_column(shown, "due" if is_scheduled else "leased until")
    if not is_narrow:
        number_column(shown, "attempts")
        name_column(shown, "reference", most=24)
    text_column(shown, "item")
    for item in found:
        until = item.enqueue_at if is_scheduled else item.lease_deadline
        cells: list[RenderableType] = [cell(item.id, "cyan")]
        if with_source:
            cells.append(cell(item.source_id or ""))
        cells.append(cell(ago(until, now) if until else ""))
        if not is_narrow:
            cells += [number(item.attempts), Name(item.reference)]
        shown.add_row(*cells, cell(start_of(item.payload)))
    return shown


app = App(
    name="lent",
    help="List, create, update and delete the queues of the queue server.",
    help_format="markdown",
)
for command in (stats, items, clear):
    app.command(command)

Partitions: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=1))]


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the queues of the queue server."""
    async with desk.queue_server() as server:
        listed = one_by_one(
            lambda pivot, size: server.queues(pivot=pivot, limit=size), lambda queue: queue.name
        )
        found = [queue async for queue in listed]
    if desk.as_json:
        for queue in found:
            desk.document(queue)
        return
    if not found:
        desk.tell("There are no queues yet. Create one: dlq queues lent create NAME")
        return
    is_narrow = desk.out.width < NARROW
    shown = table()
    name_column(shown, "queue")
    firm_column(shown, "lease")
    firm_column(shown, "expires")
    number_column(shown, "attempts")
    if not is_narrow:
        number_column(shown, "partitions")
    name_column(shown, "dead queue")
    for queue in found:
        shown.add_row(
            Name(queue.name, "cyan"),
            cell(format_duration(queue.lease_timeout)),
            cell(format_duration(queue.expire_timeout)),
            number(queue.max_attempts),
            *([] if is_narrow else [number(queue.partitions)]),
            Name(queue.dead_queue or ""),
        )
    desk.show(shown)


@app.command
async def create(
    name: str,
    /,
    *,
    lease: str = "1m",
    expire: str = "24h",
    dead_queue: str | None = None,
    max_attempts: Count = None,
    limit_mode: LimitMode = LimitMode.REACHED,
    partitions: Partitions = None,
    reference: OptionalText = "",
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Create a queue of the queue server.

    Args:
        name: Name of the new queue.
        lease: Duration of a lease, such as 30s, 5m or 1h30m.
        expire: Time after which a waiting item is dead.
        dead_queue: Existing queue to which dead items are moved.
        max_attempts: Attempts after which an item is dead (0: unlimited).
        limit_mode: reached: the last of these attempts decides; exceeded: one more does.
        partitions: Number of partitions.
        reference: Note for people.
        reason: Reason for the audit.
    """
    queue = LeaseQueue(
        name=name,
        lease_timeout=_seconds(lease),
        expire_timeout=_seconds(expire),
        dead_queue=dead_queue,
        max_attempts=max_attempts or 0,
        limit_mode=limit_mode,
        partitions=partitions or 1,
        reference=reference,
    )
    async with desk.queue_server() as server:
        await server.create_queue(queue, reason=reason)
    if desk.as_json:
        desk.document(queue)
    else:
        desk.tell(f"Created queue {name}.")


@app.command
async def update(
    name: str,
    /,
    *,
    lease: str | None = None,
    expire: str | None = None,
    dead_queue: str | None = None,
    no_dead_queue: Flag = False,
    max_attempts: Count = None,
    limit_mode: LimitMode | None = None,
    partitions: Partitions = None,
    reference: str | None = None,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Change the options of a queue; options that are not given stay unchanged.

    The new limits and the new dead queue apply to the items in the queue as well.

    Args:
        name: Name of the queue.
        lease: Duration of a lease.
        expire: Time after which a waiting item is dead.
        dead_queue: Existing queue to which dead items are moved.
        no_dead_queue: Delete dead items instead of moving them.
        max_attempts: Attempts after which an item is dead (0: unlimited).
        limit_mode: reached: the last of these attempts decides; exceeded: one more does.
        partitions: Number of partitions, at least as many as now.
        reference: Note for people.
        reason: Reason for the audit.
    """
    given: dict[str, object] = {
        "lease_timeout": None if lease is None else _seconds(lease),
        "expire_timeout": None if expire is None else _seconds(expire),
        "dead_queue": dead_queue,
        "max_attempts": max_attempts,
        "limit_mode": limit_mode,
        "partitions": partitions,
        "reference": reference,
    }
    changes: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if no_dead_queue:
        changes["dead_queue"] = None
    async with desk.queue_server() as server:
        queue = structs.replace(await server.queue(name), **changes)
        await server.update_queue(queue, reason=reason)
    if desk.as_json:
        desk.document(queue)
    else:
        desk.tell(f"Changed queue {name}.")


@app.command
async def delete(
    name: str, /, *, force: Flag = False, reason: Reason = "", yes: Yes = False, desk: AtDesk
) -> None:
    """
    Delete a queue and its items.

    Args:
        name: Name of the queue.
        force: Delete the queue even if it is the dead queue of another one.
        reason: Reason for the audit.
        yes: Do not ask for confirmation.
    """
    async with desk.queue_server() as server:
        inside = sum(one.total + one.scheduled for one in await server.stats(name))
        what = f"delete queue {name} and {many(inside, 'item')} in it"
        ask_to_confirm(desk, what, yes=yes, count=inside)
        await server.delete_queue(name, force=force, reason=reason)
    if desk.as_json:
        desk.document({"queue": name, "items": inside})
    else:
        desk.tell(f"Deleted queue {name} with {many(inside, 'item')}.")


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
