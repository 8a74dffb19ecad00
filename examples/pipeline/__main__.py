"""
The pipeline as a service, with its settings in environment variables.

    PIPELINE_GRAPH=graph.json PIPELINE_BROKER=kafka://localhost:9092 python -m pipeline
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from deadletter.observe.logs import log_events
from deadletter.observe.metrics import Metrics
from deadletter.observe.observers import fan_out
from deadletter.system import SystemClock

from .engine import open_pipeline
from .settings import Settings


async def main() -> int:
    """Run the nodes until told to stop."""
    settings = Settings.read(os.environ)
    registry = CollectorRegistry()
    observe = fan_out(log_events(SystemClock()), Metrics(registry))
    with _metrics(settings.metrics_port, registry):
        async with open_pipeline(settings, observe) as pipeline:
            return await pipeline.app.work(health_port=settings.health_port, install_signals=True)


@contextmanager
def _metrics(port: int | None, registry: CollectorRegistry) -> Iterator[None]:
    if port is None:
        yield
        return
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
