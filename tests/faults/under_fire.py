"""A worker that will be killed: `python under_fire.py DIR`."""

import asyncio
import os
import sys
from pathlib import Path

from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy
from deadletter.runtime.handlers import Context

PLACE = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

app = App(f"sqlite:///{PLACE}/fire.db")
effects = os.open(PLACE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.handler("work", policy=DLQPolicy(max_attempts=4, backoff=NoBackoff()), lease=1.0, slots=20)
async def handle(body: dict[str, str], context: Context) -> None:
    """Do as the body says, and note it outside the system."""
    number, kind = body["number"], body["kind"]
    line = f"{number} {kind} {context.attempt} {os.getpid()}\n"
    os.write(effects, line.encode())
    if kind == "poison":
        os._exit(9)
    if kind == "slow":
        await asyncio.sleep(0.05)
    if kind == "bad":
        raise ValueError(f"no good: {number}")
    os.write(effects, f"{number} done\n".encode())


if __name__ == "__main__":
    sys.exit(app.run())
