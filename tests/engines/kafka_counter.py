"""Many count at once, each for a group of his own: `python kafka_counter.py URL`."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from deadletter.system import SystemClock
from deadletter.testing.queue_bench import a_message, info
from engines.kafka_rig import opened

MANY = 16


async def counted(url: str) -> list[int]:
    """How many messages each of them sees."""
    urls = [f"{url}&group=g{number}" for number in range(MANY)]
    engines = [await opened(one, SystemClock()) for one in urls]
    try:
        await engines[0].broker.sink("work").send([a_message() for _ in range(3)])
        found = await asyncio.gather(*(info(one.broker, "work") for one in engines))
        return [one.ready for one in found]
    finally:
        await asyncio.gather(*(engine.close() for engine in engines))


if __name__ == "__main__":
    print(set(asyncio.run(counted(sys.argv[1]))))
