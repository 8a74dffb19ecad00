"""
A process of an application that orders and sends within transactions until it is killed.

    python borrowed_worker.py URL DRIVER FIRST

Half of the transactions are rolled back, at any moment.
"""

import asyncio
import random
import sys

from borrowed_rig import POSTGRESQL, SQLITE
from deadletter import App


async def main(url: str, driver: str, first: int) -> None:
    opened = (SQLITE if url.startswith("sqlite") else POSTGRESQL)[driver]
    dice = random.Random(first)
    async with App(url) as app, opened(url) as shop:
        print("ready", flush=True)
        for n in range(first, first + 1_000_000):
            await shop.order(app, n, commits=dice.random() < 0.5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
