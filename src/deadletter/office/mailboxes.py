"""Mailboxes as people make, change and delete them; all of it is audited."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import structs

from deadletter.core.counts import many
from deadletter.core.errors import NotFound
from deadletter.core.letter import By
from deadletter.ports import Broker, LetterStore, QueueInfo, QueueOptions

RECENTLY: Final = timedelta(minutes=1)  # a worker may just be about to take it


def unworked(queues: Sequence[QueueInfo], now: datetime) -> list[QueueInfo]:
    """
    Mailboxes with messages that are ready, of which no worker holds any.

    Dead-letter mailboxes are left out: what lies there is a copy of a letter.
    """
    dead = {queue.options.dead_queue for queue in queues}
    return [
        queue
        for queue in queues
        if queue.ready and not queue.claimed and queue.options.name not in dead
        if queue.oldest_at is None or queue.oldest_at < now - RECENTLY
    ]


async def find_mailbox(broker: Broker, name: str) -> QueueInfo:
    """One mailbox and what is in it."""
    for queue in await broker.queues():
        if queue.options.name == name:
            return queue
    raise NotFound(f"there is no mailbox {name!r}; `dlq queues list` shows them")


async def create_mailbox(
    broker: Broker, store: LetterStore, options: QueueOptions, by: By
) -> None:
    """Make a mailbox. The same again is fine; with other options it is a Conflict."""
    await broker.create(options)
    await store.record("create", options.name, by, _said(options))


async def change_mailbox(
    broker: Broker, store: LetterStore, name: str, changes: dict[str, Any], by: By
) -> QueueOptions:
    """Change some of a mailbox's options; the others stay as they are."""
    old = (await find_mailbox(broker, name)).options
    options = structs.replace(old, **changes)
    await broker.update(options)
    await store.record("update", name, by, _said(options))
    return options


async def delete_mailbox(
    broker: Broker, store: LetterStore, name: str, by: By, *, force: bool = False
) -> int:
    """Delete a mailbox; how many messages went with it. Its letters stay."""
    await find_mailbox(broker, name)
    gone = await broker.delete(name, force=force)
    await store.record("delete", name, by, f"{many(gone, 'message')} purged")
    return gone


def _said(options: QueueOptions) -> str:
    parts = [
        f"dead queue {options.dead_queue}" if options.dead_queue else "",
        many(options.max_attempts, "attempt") if options.max_attempts else "",
        f"expires after {options.expire_after} s" if options.expire_after else "",
    ]
    return ", ".join(part for part in parts if part) or "no options"
