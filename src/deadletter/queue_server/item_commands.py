"""dlq produce, lease, complete, retry: a client of the queue server."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table

from deadletter.cli.desk import AtDesk, Desk
from deadletter.cli.options import Flag, OptionalText, given_body
from deadletter.cli.ui import (
    cell,
    firm_column,
    local,
    many,
    number,
    number_column,
    table,
    text_column,
)
from deadletter.client import Lease
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.text import clean

from .model import ItemRetry, NewItem

Delay: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0))]
Partition: TypeAlias = Annotated[
    int, Parameter(name=["--partition", "-p"], validator=Number(gte=0))
]
Wait: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0.01, lte=900))]
Batch: TypeAlias = Annotated[
    int, Parameter(name=["--limit", "-n"], validator=Number(gte=1, lte=1000))
]
_SHOWN = 60  # characters of what is in an item


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
    return payload[:_SHOWN].decode("utf-8", "backslashreplace")


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
