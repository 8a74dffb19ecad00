"""A worker with a ledger that will be killed: `python conflict_worker.py DIR`."""

import asyncio
import os
import sys
from pathlib import Path

from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.message import Delivery
from deadletter.core.policy import DLQPolicy
from deadletter.runtime import idempotency as once

once.BUSY_PAUSE = 0.2
PLACE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

app = App(f"sqlite:///{PLACE}/office.db")
effects = os.open(PLACE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.handler(
    "work",
    policy=DLQPolicy(max_attempts=2, backoff=NoBackoff()),
    lease=1.0,
    slots=4,
    idempotent=True,
)
async def handle(delivery: Delivery) -> None:
    """Note the body outside the system; bad ones fail."""
    body = delivery.message.body
    if body.startswith(b"bad"):
        raise ValueError("no good")
    os.write(effects, body + b"\n")
    await asyncio.sleep(0.02)  # so that there is something to kill


if __name__ == "__main__":
    sys.exit(app.run())
