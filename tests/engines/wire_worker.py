"""
A worker behind a bad wire: `python wire_worker.py URL OFFICE EFFECTS`.

Notes what its handler was given, and answers probes on the port in WIRE_HEALTH.
"""

import os
import sys
from hashlib import sha256
from typing import Any

from deadletter.app import App
from deadletter.core.backoff import Fixed
from deadletter.core.policy import DLQPolicy

URL, OFFICE, EFFECTS = sys.argv[1:4]

app = App(URL, office=OFFICE or None, observe=lambda event: print(event, flush=True))
effects = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.handler(
    "orders", policy=DLQPolicy(max_attempts=50, backoff=Fixed(0.5)), lease=10.0, slots=20, grace=5.0
)
async def handle(body: bytes) -> None:
    """Note which message it was, and whether it is whole."""
    number, _, rest = body.partition(b" ")
    digest, _, content = rest.partition(b" ")
    is_whole = digest.decode("ascii", "replace") == sha256(content).hexdigest()
    said = number.decode("ascii", "replace") if is_whole else "mangled"
    os.write(effects, f"{said}\n".encode("ascii", "replace"))


def work() -> int:
    """Run until told to stop."""
    options: dict[str, Any] = {"health_port": int(os.environ["WIRE_HEALTH"])}
    return app.run(**options)


if __name__ == "__main__":
    sys.exit(work())
