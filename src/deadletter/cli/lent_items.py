"""dlq queues lent stats, items, clear: what is in the queues of the queue server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from deadletter.client import QueueClient
from deadletter.core.items import Item, PartitionStats

from .asking import agreed
from .desk import AtDesk
from .items import Partition, start_of
from .options import AtMost, Flag, Reason, Yes
from .paging import one_by_one
from .servers import queue_server
from .tables import (
    NARROW,
    Name,
    cell,
    firm_column,
    name_column,
    number,
    number_column,
    table,
    text_column,
)
from .times import ago, many, span

_SHOWN: Final = 50  # items, unless somebody says how many
_PAGE: Final = 100  # items asked for at once; they may be large
_ROOMY: Final = 100  # columns from which there is room for where an item came from


async def stats(name: str, /, *, desk: AtDesk) -> None:
    """
    Count what is in a queue, partition by partition; ages are averages.

    Args:
        name: Which.
    """
    async with queue_server(desk) as server:
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
    Show what is in a queue, without leasing it.

    With --json one line each, and what is in it as base64.

    Args:
        name: Which.
        scheduled: What is not due yet, instead.
        partition: Which.
        limit: At most so many. Otherwise 50; with --json, all of them.
    """
    most = limit if desk.as_json else limit or _SHOWN
    found: list[Item] = []
    count, is_cut = 0, False
    async with (
        queue_server(desk) as server,
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
        desk.tell(f"Nothing is {where} partition {partition} of {name}.")
    if is_cut:
        desk.warn(
            f"There is more than {many(count, 'item')}: -n says how many to show."
        )


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
    Delete what waits in a queue, for good. The queue stays.

    Args:
        name: Which.
        scheduled: What is not due yet, instead.
        leased: Also what is lent out; who has it cannot complete it any more.
        reason: Why; goes into the audit.
        yes: Do not ask.
    """
    which = "scheduled" if scheduled else "waiting or leased" if leased else "waiting"
    async with queue_server(desk) as server:
        found = await server.stats(name)
        count = sum(_meant(one, scheduled=scheduled, leased=leased) for one in found)
        what = f"delete {many(count, 'item')} {which} in {name}"
        agreed(desk, what, yes=yes, count=count)
        await server.clear(
            name,
            waiting=not scheduled,
            scheduled=scheduled,
            destructive=leased,
            reason=reason,
        )
        left = sum(one.total + one.scheduled for one in await server.stats(name))
    if desk.as_json:
        desk.document({"queue": name, "left": left})
    else:
        desk.tell(f"What was {which} in {name} is gone; {many(left, 'item')} left.")


def _listed(
    server: QueueClient, name: str, partition: int, *, scheduled: bool
) -> AsyncGenerator[Item]:
    """Everything in a partition, in order."""
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
