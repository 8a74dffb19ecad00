"""dlq produce, lease, complete, retry: a client of the queue server."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table

from deadletter.client import Lent
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.items import Again, NewItem
from deadletter.core.safe import clean

from .bodies import given_body
from .desk import AtDesk, Desk
from .options import Flag, Text
from .servers import queue_server
from .tables import cell, firm_column, number, number_column, table, text_column
from .times import local, many

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
    reference: Text = "",
    encoding: Text = "",
    kind: Text = "",
    delay: Delay = 0.0,
    desk: AtDesk,
) -> None:
    """
    Put an item into a queue of the queue server.

    Args:
        queue: Which; `dlq queues lent create` makes one.
        body: What is in the item, as text. Without it, --file says where it is.
        file: A file with it; - is standard input.
        reference: What it belongs to, for those who look.
        encoding: How it is encoded, for its consumer.
        kind: What kind of thing it is, for its consumer.
        delay: Seconds before it can be leased.
    """
    item = NewItem(
        payload=given_body(body, file),
        reference=reference,
        encoding=encoding,
        kind=kind,
        enqueue_at=_later(desk, delay),
    )
    async with queue_server(desk) as server:
        await server.produce(queue, [item])
    if desk.as_json:
        desk.document({"queue": queue, "produced": 1})
    else:
        desk.tell(f"1 item is in {queue}.")


async def lease(
    queue: str,
    /,
    *,
    limit: Batch = 1,
    wait: Wait = 30.0,
    raw: Flag = False,
    desk: AtDesk,
) -> None:
    """
    Borrow items of a queue; they come back by themselves if they are not completed.

    With --json one line each: its id and partition, and what is in it as base64.

    Args:
        queue: Which.
        limit: At most so many.
        wait: Seconds to wait for the first.
        raw: Write what is in the one item as it is, into a file or a pipe.
    """
    if raw and (limit != 1 or sys.stdout.isatty()):
        raise ConfigError("--raw is for one item, and for a file or a pipe")
    async with queue_server(desk) as server:
        lent = await server.lease(queue, limit=limit, wait=wait)
    if raw:
        if not lent.items:
            raise NotFound(f"nothing to lease in {queue}")
        sys.stdout.buffer.write(lent.items[0].payload)
        sys.stdout.buffer.flush()
        told = f"{lent.items[0].id} --partition {lent.partition}"
        desk.err.print(clean(told), soft_wrap=True)
        return
    if desk.as_json:
        for item in lent.items:
            desk.document({"queue": queue, "partition": lent.partition, "item": item})
        return
    if lent.items:
        desk.show(_table(lent))
    else:
        desk.tell(f"Nothing to lease in {queue}.")


def _table(lent: Lent) -> Table:
    shown = table()
    firm_column(shown, "id")
    number_column(shown, "partition")
    number_column(shown, "attempt")
    firm_column(shown, "until")
    text_column(shown, "item")
    for item in lent.items:
        until = item.lease_deadline
        shown.add_row(
            cell(item.id, "cyan"),
            number(lent.partition),
            number(item.attempts),
            cell(local(until) if until else ""),
            cell(start_of(item.payload)),
        )
    return shown


def start_of(payload: bytes) -> str:
    """As much of what is in an item as a line has room for."""
    return payload[:_SHOWN].decode("utf-8", "backslashreplace")


async def complete(
    queue: str, /, *ids: str, partition: Partition = 0, desk: AtDesk
) -> None:
    """
    Say that leased items are done with: all of them or none.

    Args:
        queue: Which.
        ids: As `dlq lease` shows them.
        partition: As `dlq lease` shows it.
    """
    _some(ids)
    async with queue_server(desk) as server:
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
    Give leased items back, to be leased again: all of them or none.

    Args:
        queue: Which.
        ids: As `dlq lease` shows them.
        partition: As `dlq lease` shows it.
        delay: Seconds before they can be leased again.
        dead: To the dead queue, whatever attempts remain.
    """
    _some(ids)
    at = _later(desk, delay)
    async with queue_server(desk) as server:
        items = [Again(id=id_, retry_at=at, dead=dead) for id_ in ids]
        await server.retry(queue, partition, items)
    _done(desk, len(ids), "given up" if dead else "given back")


def _some(ids: tuple[str, ...]) -> None:
    if not ids:
        raise ConfigError("say which items: `dlq lease` shows their ids")


def _later(desk: Desk, delay: float) -> datetime | None:
    return desk.clock.now() + timedelta(seconds=delay) if delay else None


def _done(desk: Desk, count: int, what: str) -> None:
    if desk.as_json:
        desk.document({"items": count, "done": what})
    else:
        desk.tell(f"{many(count, 'item')} {what}.")
