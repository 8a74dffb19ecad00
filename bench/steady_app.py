"""The App whose worker is watched: it says when each handler starts."""

import time
from typing import Any

from deadletter.app import App

app = App()


@app.handler("orders")
async def handle(order: dict[str, Any]) -> None:
    """Say when this was called, and how busy the process has been until then."""
    print(time.monotonic_ns(), time.process_time(), flush=True)
