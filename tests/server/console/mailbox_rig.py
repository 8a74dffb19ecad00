"""An office with mailboxes, letters, workers and an open brake."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from deadletter.core.message import Message
from deadletter.core.presence import WorkedMailbox, WorkerSign
from deadletter.ports import Presence, QueueOptions
from deadletter.server.context import ServerContext
from deadletter.testing.letters_bench import a_letter
from deadletter.testing.letters_filing import a_window

HOSTILE = "<script>alert(1)</script>\u202eevil\x1b[2J"


async def furnish(context: ServerContext) -> None:
    """Make three mailboxes; the brake of `mails` is open, `orders` has two workers."""
    now, broker = context.clock.now(), context.engine.broker
    await broker.create(QueueOptions(name="orders-dlq"))
    await broker.create(QueueOptions(name="orders", dead_queue="orders-dlq", max_attempts=5))
    await broker.create(QueueOptions(name="mails"))
    messages = [Message(id=f"m-{n}", body=b"{}", sent_at=now) for n in range(5)]
    await broker.sink("orders").send(messages)
    await broker.source("orders").receive(limit=2, wait=0.0, lease=60.0)
    died = datetime.now(UTC) - timedelta(hours=1)  # the office goes by the system's clock
    await context.store.keep(
        [a_letter(source="orders", version="1.8.0", at=died) for _ in range(3)]
    )
    window = replace(a_window(mailbox="mails"), opened_at=now - timedelta(minutes=12))
    await context.store.save_window(replace(window, seen_at=now, text=f"all fail {HOSTILE}"))
    await note_workers(context, "1.8.1", "1.8.0")


async def note_workers(context: ServerContext, *versions: str) -> None:
    """Have a worker of each version say that it works `orders`."""
    assert isinstance(context.store, Presence)
    await context.store.note_workers(
        [
            WorkerSign(
                id=f"w-{number}",
                name=f"shop-{number}:17",
                host=f"shop-{number}",
                version=version,
                mailboxes=(WorkedMailbox(mailbox="orders", slots=10, in_flight=number),),
            )
            for number, version in enumerate(versions, 1)
        ]
    )
