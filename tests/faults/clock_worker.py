"""
A worker whose handlers fail once: `python clock_worker.py DIR URL OFFICE`.

Its clock is that of the machine, changed by the seconds in the file DIR/step, if that
is there; "frozen" in it makes the clock stand still.
"""

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

from deadletter.app import App
from deadletter.core.backoff import Fixed
from deadletter.core.policy import DLQPolicy
from deadletter.runtime.handlers import Context
from deadletter.system import SystemClock

place, url, office = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


class SteppedClock(SystemClock):
    """A wall clock that somebody else sets."""

    def __init__(self) -> None:
        self._frozen: datetime | None = None

    def now(self) -> datetime:
        now, step = super().now(), self._step()
        if step == "frozen":
            self._frozen = self._frozen or now
            return self._frozen
        self._frozen = None
        return now + timedelta(seconds=float(step))

    def _step(self) -> str:
        file = place / "step"
        return file.read_text() if file.exists() else "0"


app = App(url, office=office or None, clock=SteppedClock())
effects = os.open(place / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.handler(
    "work",
    policy=DLQPolicy(max_attempts=9, backoff=Fixed(1.0)),
    lease=10.0,
    brake=None,  # all of them fail at first
)
async def handle(body: dict[str, str], context: Context) -> None:
    """Fail on the first attempt, and note every run outside the system."""
    outcome = "failed" if context.attempt == 1 else "done"
    os.write(effects, f"{body['number']} {outcome}\n".encode())
    if outcome == "failed":
        raise OSError("not yet")


if __name__ == "__main__":
    sys.exit(app.run())
