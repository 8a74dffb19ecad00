"""Mailboxes as people create, change and delete them, audited, and their outages."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, structs

from deadletter.core.brake import BrakeWindow, WindowState, merged
from deadletter.core.errors import NotFound
from deadletter.core.letter import By
from deadletter.core.text import many
from deadletter.ports import Broker, Clock, LetterStore, QueueInfo, QueueOptions

RECENTLY: Final = timedelta(minutes=1)  # a worker may just be about to take it


def unworked(queues: Sequence[QueueInfo], now: datetime) -> list[QueueInfo]:
    """
    Return mailboxes with ready messages of which no worker holds any.

    Dead-letter mailboxes are left out: they hold copies of letters.
    """
    dead = {queue.options.dead_queue for queue in queues}
    return [
        queue
        for queue in queues
        if queue.ready and not queue.claimed and queue.options.name not in dead
        if queue.oldest_at is None or queue.oldest_at < now - RECENTLY
    ]


async def find_mailbox(broker: Broker, name: str) -> QueueInfo:
    """Return one mailbox and the numbers of its messages."""
    for queue in await broker.queues():
        if queue.options.name == name:
            return queue
    raise NotFound(f"there is no mailbox {name!r}; `dlq queues list` shows them")


async def create_mailbox(broker: Broker, store: LetterStore, options: QueueOptions, by: By) -> None:
    """Create a mailbox. Raises Conflict if it exists with other options."""
    await broker.create(options)
    await store.record("create", options.name, by, _said(options))


async def change_mailbox(
    broker: Broker, store: LetterStore, name: str, changes: dict[str, Any], by: By
) -> QueueOptions:
    """Change some of a mailbox's options; the others stay."""
    old = (await find_mailbox(broker, name)).options
    options = structs.replace(old, **changes)
    await broker.update(options)
    await store.record("update", name, by, _said(options))
    return options


async def delete_mailbox(
    broker: Broker, store: LetterStore, name: str, by: By, *, force: bool = False
) -> int:
    """Delete a mailbox; return the number of messages deleted. Its letters stay."""
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


LATEST: Final = 1_000  # windows that are looked at


class Outage(Struct, frozen=True, kw_only=True):
    """One period during which a mailbox was held back, by any number of workers."""

    state: WindowState
    window: BrakeWindow


class Released(Struct, frozen=True, kw_only=True):
    """A mailbox whose workers may fetch again."""

    mailbox: str
    windows: int


async def list_outages(
    store: LetterStore,
    clock: Clock,
    *,
    mailbox: str | None = None,
    only: Collection[str] = (),
    only_open: bool = False,
    limit: int = 50,
) -> list[Outage]:
    """Return the periods during which mailboxes were held back, latest first."""
    now = clock.now()
    found = await store.windows(mailbox=mailbox, limit=LATEST)
    shown = merged(one for one in found if not only or one.mailbox in only)
    outages = [Outage(state=one.state(now), window=one) for one in shown]
    if only_open:
        outages = [one for one in outages if one.state is WindowState.OPEN]
    return outages[:limit]


async def release_mailbox(store: LetterStore, mailbox: str, by: By) -> Released:
    """Let a mailbox's workers fetch again: messages are judged by their policy."""
    count = await store.release_windows(mailbox, by)
    if not count:
        raise not_held(mailbox)
    return Released(mailbox=mailbox, windows=count)


def not_held(mailbox: str) -> NotFound:
    """Return the error for a mailbox that is not held back."""
    return NotFound(
        f"the brake of mailbox {mailbox!r} is not open; `dlq outages` shows those that are"
    )
