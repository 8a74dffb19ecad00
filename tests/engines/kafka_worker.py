"""A worker that will die: `python kafka_worker.py URL OFFICE EFFECTS [burying]`."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from deadletter.app import App
from deadletter.brokers.kafka.mailbox import KafkaSource
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy
from deadletter.ports import Acked, Fate, Settlement
from deadletter.runtime.handlers import Context

URL, OFFICE, EFFECTS = sys.argv[1:4]
app = App(URL, office=OFFICE)
effects = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.handler("work", policy=DLQPolicy(max_attempts=3, backoff=NoBackoff()), lease=10.0, slots=20)
async def handle(body: dict[str, str], context: Context) -> None:
    """Do as the body says, and note it outside the system."""
    number, kind = body["number"], body["kind"]
    os.write(effects, f"{number} {kind} {context.attempt}\n".encode())
    if kind == "poison":
        os._exit(9)
    if kind == "bad":
        raise ValueError(f"no good: {number}")
    await asyncio.sleep(0.01)


def die_when_burying() -> None:
    """End without a word when a letter is kept and its message not yet acked."""
    settle = KafkaSource.settle

    async def dying(self: KafkaSource, settlements: Sequence[Settlement]) -> Sequence[bool]:
        if any(isinstance(s, Acked) and s.fate is Fate.BURIED for s in settlements):
            os._exit(9)
        return await settle(self, settlements)

    KafkaSource.settle = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    if "burying" in sys.argv:
        die_when_burying()
    sys.exit(app.run())
