"""
A queue of any depth, filled and drained, each in a process of its own.

    python steady_worker.py fill FILE N        python steady_worker.py drain FILE N

`drain` works the first N messages of whatever is queued and says how long that
took, from the first handler call to the last.
"""

import asyncio
import json
import sys
from typing import Any

from deadletter.app import App
from workload import Measured, Watch, body

CHUNK = 1_000


async def fill(app: App, n: int) -> Measured:
    """Queue so many more."""
    watch = Watch(n)
    watch.start()
    for start in range(0, n, CHUNK):
        numbers = range(start, min(start + CHUNK, n))
        await app.send_many("orders", [body(number) for number in numbers])
    return watch.stop()


async def drain(app: App, n: int) -> Measured:
    """Work so many of them, or a few more that were under way, not the others."""
    measured: list[Measured] = []
    stop = asyncio.Event()

    def enough() -> None:
        measured.append(watch.stop())
        stop.set()

    watch = Watch(n, enough)

    @app.handler("orders")
    async def handle(order: dict[str, Any]) -> None:
        watch.hit()

    await app.work(stop)
    return measured[0]


async def main(what: str, file: str, n: int) -> None:
    """Do it, and say how long it took."""
    async with App(f"sqlite:///{file}") as app:
        measured = await {"fill": fill, "drain": drain}[what](app, n)
    print(json.dumps([measured.n, measured.seconds, measured.cpu_seconds]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
