"""
One process of several on one file; run by test_sqlite_processes.py.

    python sqlite_load.py ROLE FILE SECONDS

Waits for FILE.go to appear, works, and prints one JSON line of what it saw. The
role `writer` works until it is killed, and writes FILE.log as it goes: a line
once something has been confirmed to it.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from deadletter.core.message import Message
from deadletter.ports import Acked, Released
from deadletter.stores.sqlite import SqliteEngine, open_engine
from deadletter.system import SystemClock, SystemDice

clock, dice = SystemClock(), SystemDice()


def messages(count: int) -> list[Message]:
    return [Message(id=dice.new_id(), body=b"x" * 300, sent_at=clock.now()) for _ in range(count)]


async def opened(path: str) -> SqliteEngine:
    return await open_engine(f"sqlite:///{path}", clock=clock, dice=dice)


async def opens(path: str, seconds: float) -> Counter[str]:
    engine = await opened(path)
    await engine.broker.sink("orders").send(messages(1))
    await engine.close()
    return Counter(sent=1)


async def mixed(path: str, seconds: float) -> Counter[str]:
    engine = await opened(path)
    sink, source = engine.broker.sink("orders"), engine.broker.source("orders")
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds

    async def produce() -> None:
        while time.monotonic() < end:
            await sink.send(messages(10))
            seen["sent"] += 10

    async def consume() -> None:
        while time.monotonic() < end:
            batch = await source.receive(limit=20, wait=0.1, lease=60.0)
            settled = await source.settle(
                [Acked(d) if i % 4 else Released(d, 0.01) for i, d in enumerate(batch)]
            )
            seen["fenced"] += settled.count(False)
            seen["handled"] += sum(1 for i in range(len(batch)) if i % 4)

    async def look() -> None:
        while time.monotonic() < end:
            await engine.broker.queues()
            await engine.broker.sweep()
            seen["looked"] += 1
            await asyncio.sleep(0.05)

    await asyncio.gather(produce(), consume(), consume(), look())
    await engine.close()
    return seen


async def writer(path: str, seconds: float) -> Counter[str]:
    engine = await opened(path)
    sink, source = engine.broker.sink("orders"), engine.broker.source("orders")
    log = os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while True:
        sending = messages(5)
        await sink.send(sending)
        os.write(log, "".join(f"sent {m.id}\n" for m in sending).encode())
        batch = await source.receive(limit=3, wait=0, lease=600.0)
        os.write(log, "".join(f"acking {d.message.id}\n" for d in batch).encode())
        await source.settle([Acked(delivery) for delivery in batch])
        os.write(log, "".join(f"acked {d.message.id}\n" for d in batch).encode())


def main(role: str, path: str, seconds: float) -> None:
    while not Path(f"{path}.go").exists():
        time.sleep(0.005)
    work = {"opens": opens, "mixed": mixed, "writer": writer}[role]
    seen = asyncio.run(work(path, seconds))
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
