"""dlq queues lent: the queues of the queue server."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs
from rich.table import Table

from deadletter.core.durations import format_duration, parse_duration
from deadletter.core.errors import ConfigError
from deadletter.core.items import Item, LeaseQueue

from .asking import agreed
from .desk import AtDesk
from .items import Partition, queue_server, start_of
from .options import Count, Flag, Shown, Text, Yes
from .tables import cell, firm_column, number, number_column, table, text_column
from .times import local, many

app = App(
    name="lent",
    help="The queues of the queue server: list, create, update, delete them.",
    help_format="markdown",
)

Partitions: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=1))]


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the queues that are leased from."""
    async with queue_server(desk) as server:
        found = await server.queues()
    if desk.as_json:
        for queue in found:
            desk.document(queue)
        return
    if not found:
        desk.tell("There are no such queues yet: dlq queues lent create NAME")
        return
    shown = table()
    text_column(shown, "queue")
    firm_column(shown, "lease")
    firm_column(shown, "expires")
    number_column(shown, "attempts")
    number_column(shown, "partitions")
    firm_column(shown, "dead queue", most=24)
    for queue in found:
        shown.add_row(
            cell(queue.name, "cyan"),
            cell(format_duration(queue.lease_timeout)),
            cell(format_duration(queue.expire_timeout)),
            number(queue.max_attempts),
            number(queue.partitions),
            cell(queue.dead_queue or ""),
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
    partitions: Partitions = None,
    reference: Text = "",
    desk: AtDesk,
) -> None:
    """
    Make a queue to lease from.

    Args:
        name: What it is called.
        lease: How long an item is lent, as in 30s, 5m, 1h30m.
        expire: How long an item may wait before it is dead.
        dead_queue: Where dead items go. It must exist.
        max_attempts: After so many an item is dead; 0 is as many as it takes.
        partitions: How many.
        reference: A note for people.
    """
    queue = LeaseQueue(
        name=name,
        lease_timeout=_seconds(lease),
        expire_timeout=_seconds(expire),
        dead_queue=dead_queue,
        max_attempts=max_attempts or 0,
        partitions=partitions or 1,
        reference=reference,
    )
    async with queue_server(desk) as server:
        await server.create_queue(queue)
    if desk.as_json:
        desk.document(queue)
    else:
        desk.tell(f"Queue {name} is there.")


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
    partitions: Partitions = None,
    reference: str | None = None,
    desk: AtDesk,
) -> None:
    """
    Change a queue; what is not given stays as it is.

    Args:
        name: Which.
        lease: How long an item is lent.
        expire: How long an item may wait before it is dead.
        dead_queue: Where dead items go. It must exist.
        no_dead_queue: Dead items are deleted.
        max_attempts: After so many an item is dead; 0 is as many as it takes.
        partitions: How many; never fewer than there are.
        reference: A note for people.
    """
    given: dict[str, object] = {
        "lease_timeout": None if lease is None else _seconds(lease),
        "expire_timeout": None if expire is None else _seconds(expire),
        "dead_queue": dead_queue,
        "max_attempts": max_attempts,
        "partitions": partitions,
        "reference": reference,
    }
    changes: dict[str, object] = {
        key: value for key, value in given.items() if value is not None
    }
    if no_dead_queue:
        changes["dead_queue"] = None
    async with queue_server(desk) as server:
        queue = structs.replace(await server.queue(name), **changes)
        await server.update_queue(queue)
    if desk.as_json:
        desk.document(queue)
    else:
        desk.tell(f"Queue {name} is changed.")


@app.command
async def delete(
    name: str, /, *, force: Flag = False, yes: Yes = False, desk: AtDesk
) -> None:
    """
    Delete a queue and the items in it.

    Args:
        name: Which.
        force: Also if it is another queue's dead queue.
        yes: Do not ask.
    """
    async with queue_server(desk) as server:
        inside = sum(one.total for one in await server.stats(name))
        what = f"delete queue {name} and {many(inside, 'item')} in it"
        agreed(desk, what, yes=yes, count=inside)
        await server.delete_queue(name, force=force)
    if desk.as_json:
        desk.document({"queue": name, "items": inside})
    else:
        desk.tell(f"Queue {name} is gone, with {many(inside, 'item')}.")


@app.command
async def items(
    name: str,
    /,
    *,
    scheduled: Flag = False,
    partition: Partition = 0,
    limit: Shown = 50,
    desk: AtDesk,
) -> None:
    """
    Show what is in a queue, without leasing it.

    With --json one line each, and what is in it as base64.

    Args:
        name: Which.
        scheduled: What is not due yet, instead.
        partition: Which.
        limit: At most so many.
    """
    async with queue_server(desk) as server:
        found = await server.items(name, partition, limit=limit, scheduled=scheduled)
    if desk.as_json:
        for item in found:
            desk.document(item)
    elif found:
        desk.show(_items_table(found))
    else:
        desk.tell(f"Nothing is in partition {partition} of {name}.")


def _items_table(found: Sequence[Item]) -> Table:
    shown = table()
    firm_column(shown, "id")
    firm_column(shown, "came from")
    number_column(shown, "attempts")
    firm_column(shown, "leased until")
    text_column(shown, "reference")
    text_column(shown, "item")
    for item in found:
        until = item.lease_deadline
        shown.add_row(
            cell(item.id, "cyan"),
            cell(item.source_id or ""),
            number(item.attempts),
            cell(local(until) if until else ""),
            cell(item.reference),
            cell(start_of(item.payload)),
        )
    return shown


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
