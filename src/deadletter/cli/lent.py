"""dlq queues lent: the queues of the queue server."""

from typing import Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec import structs

from deadletter.core.durations import format_duration, parse_duration
from deadletter.core.errors import ConfigError
from deadletter.core.items import LeaseQueue

from .asking import agreed
from .desk import AtDesk
from .lent_items import clear, items, stats
from .options import Count, Flag, Reason, Text, Yes
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
)
from .times import many

app = App(
    name="lent",
    help="The queues of the queue server: list, create, update, delete them.",
    help_format="markdown",
)
for command in (stats, items, clear):
    app.command(command)

Partitions: TypeAlias = Annotated[int | None, Parameter(validator=Number(gte=1))]


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the queues that are leased from."""
    async with queue_server(desk) as server:
        listed = one_by_one(
            lambda pivot, size: server.queues(pivot=pivot, limit=size),
            lambda queue: queue.name,
        )
        found = [queue async for queue in listed]
    if desk.as_json:
        for queue in found:
            desk.document(queue)
        return
    if not found:
        desk.tell("There are no such queues yet: dlq queues lent create NAME")
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
    partitions: Partitions = None,
    reference: Text = "",
    reason: Reason = "",
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
        reason: Why; goes into the audit.
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
        await server.create_queue(queue, reason=reason)
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
    reason: Reason = "",
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
        reason: Why; goes into the audit.
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
        await server.update_queue(queue, reason=reason)
    if desk.as_json:
        desk.document(queue)
    else:
        desk.tell(f"Queue {name} is changed.")


@app.command
async def delete(
    name: str,
    /,
    *,
    force: Flag = False,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> None:
    """
    Delete a queue and the items in it.

    Args:
        name: Which.
        force: Also if it is another queue's dead queue.
        reason: Why; goes into the audit.
        yes: Do not ask.
    """
    async with queue_server(desk) as server:
        inside = sum(one.total + one.scheduled for one in await server.stats(name))
        what = f"delete queue {name} and {many(inside, 'item')} in it"
        agreed(desk, what, yes=yes, count=inside)
        await server.delete_queue(name, force=force, reason=reason)
    if desk.as_json:
        desk.document({"queue": name, "items": inside})
    else:
        desk.tell(f"Queue {name} is gone, with {many(inside, 'item')}.")


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
