"""
python -m leasequeue                        the queue server and a worker
python -m leasequeue worker                 one more worker
python -m leasequeue film NAME FRAMES SIZE  asks for a film, as in: film sea 12 64x48
python -m leasequeue again SIZE             asks anew for what is dead, in this size
"""

import asyncio
import os
import re
import signal
import sys
from contextlib import AsyncExitStack

from deadletter import ConfigError, DeadLetterError
from deadletter.client import QueueClient

from .frame import film
from .queues import again, make_queues, resized, submit
from .server import serving
from .settings import Settings, read
from .worker import Worker


def main(arguments: list[str]) -> int:
    """Do what is asked for; the exit code."""
    try:
        return asyncio.run(_run(arguments, read(os.environ)))
    except DeadLetterError as error:
        print(f"leasequeue: {error}", file=sys.stderr)
        return 2


async def _run(arguments: list[str], settings: Settings) -> int:
    match arguments:
        case []:
            await _farm(settings)
        case ["worker"]:
            await _work(settings)
        case ["film", name, frames, size]:
            async with _queue(settings) as queue:
                asked = film(name, _count(frames), *_size(size))
                await submit(queue, asked)
            _say(f"{_many(len(asked), 'frame')} of {name} asked for")
        case ["again", size]:
            async with _queue(settings) as queue:
                sent = await again(queue, resized(*_size(size)))
            _say(f"{_many(len(sent), 'dead frame')} asked for again")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


async def _farm(settings: Settings) -> None:
    async with AsyncExitStack() as stack:
        if not settings.server:
            await stack.enter_async_context(serving(settings, _say))
        async with _queue(settings) as queue:
            await make_queues(queue, settings)
        await _work(settings)


async def _work(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _queue(settings) as queue:
        _say(f"worker {os.getpid()} is ready")
        working = asyncio.create_task(Worker(queue, settings, _say).run(stop))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await asyncio.wait_for(working, settings.grace)


def _queue(settings: Settings) -> QueueClient:
    return QueueClient(settings.url, token=settings.token or None)


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,4}", text):
        raise ConfigError(f"{text!a} is no number of frames: say it as in 12")
    return int(text)


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    if found is None:
        raise ConfigError(f"{text!a} is no size: say it as in 64x48")
    return int(found[1]), int(found[2])


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
