"""
A worker that dies between keeping a letter and acknowledging its message.

    python postgresql_worker.py URL MAILBOX
"""

import asyncio
import os
import signal
import sys

from deadletter.ports import Burial
from deadletter.stores.postgresql.engine import open_database
from deadletter.system import SystemClock
from deadletter.testing.letters_bench import a_letter

LEASE = 1.0


async def main(url: str, mailbox: str) -> None:
    engine = await open_database(url, SystemClock())
    source = engine.broker.source(mailbox)
    deliveries = await source.receive(limit=10, wait=10.0, lease=LEASE)
    assert engine.atomic_burial is not None
    burials = [
        Burial(one, a_letter(one.message.body, message_id=one.message.id)) for one in deliveries
    ]
    await engine.atomic_burial.bury(burials)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
