"""A runner of isolated handlers, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deadletter.core.message import Delivery, Message
from deadletter.runtime.isolation import OrphanGuard, ProcessRunner
from deadletter.system import SystemClock

NOW = datetime(2026, 5, 1, tzinfo=UTC)
MiB = 1024 * 1024


def delivery(body: bytes = b"", **more: Any) -> Delivery:
    message = Message(id="m-1", body=body, sent_at=NOW, reply_to="answers")
    return Delivery(message=message, mailbox="orders", receipt=object(), **more)


@asynccontextmanager
async def running(
    handler: str,
    *,
    processes: int = 1,
    time_limit: float | None = 20.0,
    memory_limit: int | None = None,
) -> AsyncIterator[ProcessRunner]:
    guard = OrphanGuard()
    runner = ProcessRunner(
        target=f"isolated_handlers:{handler}",
        processes=processes,
        time_limit=time_limit,
        memory_limit=memory_limit,
        clock=SystemClock(),
        guard=guard,
    )
    try:
        yield runner
    finally:
        await runner.close()
        guard.close()


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
