"""
A worker that dies between confirming copies and acking them.

`python confirming_worker.py DIR`. What it dies over is delivered again, and fails.
"""

import os
import sys
from pathlib import Path
from typing import Any

from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.message import Delivery
from deadletter.core.policy import DLQPolicy
from deadletter.stores.sqlite.letters import SqliteLetters

PLACE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

app = App(f"sqlite:///{PLACE}/office.db")
effects = os.open(PLACE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
settle_replays = SqliteLetters.settle_replays


async def settle_and_die(self: SqliteLetters, outcomes: Any) -> None:
    """Confirm copies, and lose the ack."""
    await settle_replays(self, outcomes)
    with (PLACE / "confirmed").open("a") as confirmed:
        confirmed.writelines(f"{one.letter_id}\n" for one in outcomes)
    os._exit(9)


SqliteLetters.settle_replays = settle_and_die  # type: ignore[method-assign]


@app.handler(
    "work",
    policy=DLQPolicy(max_attempts=1, backoff=NoBackoff()),
    lease=1.0,
    slots=4,
    brake=None,  # all of them fail at first
)
async def handle(delivery: Delivery) -> None:
    """Fail at first; of each copy, work once and fail when it comes again."""
    message = delivery.message
    line = f"{message.id} {message.generation}\n"
    if not message.generation or line in (PLACE / "effects").read_text():
        raise ValueError("no good")
    os.write(effects, line.encode())


if __name__ == "__main__":
    sys.exit(app.run())
