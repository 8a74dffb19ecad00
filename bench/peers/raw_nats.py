"""
NATS JetStream by hand: nats-py, `fetch(100)`, an ack for each, nothing around it.

What a consumer on JetStream could reach if its own code cost nothing. A failed
attempt goes to the end of the same stream with its story, the third to the dead one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.js.api import RetentionPolicy

from peers.on_server import play_on_server, until
from peers.raw import told
from workload import ATTEMPTS, BATCH, Measured, Poison, Watch, bodies, boom, must_be

QUEUE, DEAD = "orders", "dead"


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    async with _filled(url, n) as stream:
        watch = Watch(n)

        async def handle(taken: Sequence[Any]) -> None:
            for message in taken:
                json.loads(message.data)
                watch.hit()

        await _drain(stream, QUEUE, n, handle)
        return watch.stop()


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is dead."""
    async with _filled(url, n) as stream:
        measured = await _kill(stream, n)
        must_be(await _count(stream, DEAD), n, "dead")
        kept = (await stream.get_msg(DEAD, seq=1)).headers
        found = (kept["attempts"], kept["history"].count("booked"))
        must_be(found, (str(ATTEMPTS), 2 * ATTEMPTS), "kept")
        return measured


async def replay(url: str, n: int) -> Measured:
    """Dead letters back to their queue."""
    async with _filled(url, n) as stream:
        await _kill(stream, n)
        watch = Watch(n)

        async def back(taken: Sequence[Any]) -> None:
            for _ in taken:
                watch.hit()
            await _publish(stream, [(QUEUE, one.data, None) for one in taken])

        await _drain(stream, DEAD, n, back)
        measured = watch.stop()
        must_be(await _count(stream, QUEUE), n, "queued")
        return measured


async def _kill(stream: Any, n: int) -> Measured:
    watch = Watch(n)

    async def fail(taken: Sequence[Any]) -> None:
        told_of = []
        for message in taken:
            json.loads(message.data)
            watch.hit()
            headers = message.headers or {}
            attempt = int(headers.get("attempts", 0)) + 1
            try:
                boom()
            except Poison as error:
                story = headers.get("history", "") + told(error, attempt)
            subject = QUEUE if attempt < ATTEMPTS else DEAD
            kept = {"attempts": str(attempt), "history": story}
            told_of.append((subject, message.data, kept))
        await _publish(stream, told_of)

    await _drain(stream, QUEUE, n * ATTEMPTS, fail)
    return watch.stop(n)


async def _drain(
    stream: Any, name: str, n: int, handle: Callable[[Sequence[Any]], Awaitable[None]]
) -> None:
    pulled = await stream.pull_subscribe(name, f"workers-of-{name}", stream=name)
    done = 0
    while done < n:
        taken = await pulled.fetch(BATCH, timeout=5)
        await handle(taken)
        for message in taken:
            await message.ack()
        done += len(taken)

    async def is_empty() -> bool:
        return await _count(stream, name) == 0

    await until(is_empty)


async def _publish(
    stream: Any, messages: Sequence[tuple[str, bytes, dict[str, str] | None]]
) -> None:
    sent = [
        await stream.publish_async(subject, data, headers=headers)
        for subject, data, headers in messages
    ]
    await asyncio.gather(*sent)


@asynccontextmanager
async def _filled(url: str, n: int) -> AsyncIterator[Any]:
    connection = await nats.connect(url)
    stream = connection.jetstream()
    for name in (QUEUE, DEAD):
        await stream.add_stream(name=name, subjects=[name], retention=RetentionPolicy.WORK_QUEUE)
    ready = bodies(n)
    for start in range(0, n, BATCH):
        some = ready[start : start + BATCH]
        await _publish(stream, [(QUEUE, one, None) for one in some])
    yield stream
    await connection.close()


async def _count(stream: Any, name: str) -> int:
    return int((await stream.stream_info(name)).state.messages)


if __name__ == "__main__":
    play_on_server(happy, poison, replay)
