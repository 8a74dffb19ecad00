"""
A worker that dies between keeping a letter and acknowledging its message.

    python mongodb_worker.py QUEUE_URL OFFICE_URL
"""

import asyncio
import os
import signal
import sys

from deadletter.stores import sqlite
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.letters_bench import a_letter
from engines.mongodb_rig import opened

LEASE = 1.0


async def main(queue_url: str, office_url: str) -> None:
    queue = await sqlite.open_engine(queue_url, clock=SystemClock(), dice=SystemDice())
    office = await opened(office_url)
    assert office.letters is not None
    source = queue.broker.source("orders")
    deliveries = await source.receive(limit=10, wait=10.0, lease=LEASE)
    await office.letters.keep(
        [a_letter(one.message.body, message_id=one.message.id) for one in deliveries]
    )
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
