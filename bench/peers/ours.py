"""
deadletter as anybody would use it: an App, async handlers, the default settings.

The file is power-safe (synchronous=FULL) unless the setting is "normal". Without
backoff, since the other contestants have none either.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from deadletter.app import App
from deadletter.core.backoff import NoBackoff
from deadletter.core.campaign import CampaignState
from deadletter.core.letter import By, State
from deadletter.core.policy import DLQPolicy
from deadletter.office.replay import Replay
from deadletter.system import SystemClock, SystemDice
from workload import ATTEMPTS, BATCH, Measured, Watch, body, boom, must_be, play

QUEUE = "orders"
DEADLINE = 300.0  # seconds, for anything
NO_WAIT = DLQPolicy(max_attempts=ATTEMPTS, backoff=NoBackoff())


async def enqueue(app: App, n: int) -> Measured:
    """One by one, each durable before the next."""
    await app.engine()
    ready = [body(number) for number in range(n)]
    watch = Watch(n)
    watch.start()
    for one in ready:
        await app.send(QUEUE, one)
    measured = watch.stop()
    must_be(await left(app), n, "queued")
    return measured


async def enqueue_bulk(app: App, n: int) -> Measured:
    """A hundred to a call."""
    await app.engine()
    ready = [body(number) for number in range(n)]
    watch = Watch(n)
    watch.start()
    for start in range(0, n, BATCH):
        await app.send_many(QUEUE, ready[start : start + BATCH])
    measured = watch.stop()
    must_be(await left(app), n, "queued")
    return measured


async def happy(app: App, n: int) -> Measured:
    """Drain what is queued."""
    await fill(app, n)
    last = asyncio.Event()
    watch = Watch(n, last.set)

    @app.handler(QUEUE)
    async def handle(order: dict[str, Any]) -> None:
        watch.hit()

    async def drained() -> Measured:
        await last.wait()
        await until_empty(app)
        return watch.stop()

    return await working(app, drained)


async def poison(app: App, n: int) -> Measured:
    """Every message fails three times, then is a dead letter."""
    await fill(app, n)
    measured = await kill(app, n)
    letters = await app.letters()
    must_be(await letters.counts(), {QUEUE: {State.PENDING: n}}, "letters")
    (head,) = (await letters.find(limit=1)).heads
    (letter,) = await letters.get([head.id])
    texts = {attempt.text for attempt in letter.story() if attempt.stack}
    must_be((len(texts), letter.message.body[:9]), (ATTEMPTS, b'{"order":'), "kept")
    return measured


async def replay(app: App, n: int) -> Measured:
    """Dead letters back to their queue: searched, chosen, claimed, sent, tracked."""
    await fill(app, n)
    await kill(app, n)
    campaigns = await office(app)
    watch = Watch(n)
    watch.start()
    campaign = await campaigns.start("is:pending", By("bench", "all of it"), limit=n)
    await campaigns.run(campaign.id)
    measured = watch.stop()
    must_be(await left(app), n, "queued")
    return measured


async def confirm(app: App, n: int) -> Measured:
    """Replayed copies drained, until each letter's outcome is confirmed."""
    await fill(app, n)
    await kill(app, n)
    campaigns = await office(app)
    campaign = await campaigns.start("is:pending", By("bench", "all of it"), limit=n)
    await campaigns.run(campaign.id)
    again = App(app.url, office_durability="kill-safe")
    last = asyncio.Event()
    watch = Watch(n, last.set)

    @again.handler(QUEUE)
    async def handle(order: dict[str, Any]) -> None:
        watch.hit()

    async def confirmed() -> Measured:
        await last.wait()
        while True:
            course = await campaigns.status(campaign.id)
            if course.state is CampaignState.DONE:
                return watch.stop()
            await asyncio.sleep(0.001)

    async with again:
        return await working(again, confirmed)


async def fill(app: App, n: int) -> None:
    """Queue messages, a hundred at a time."""
    for start in range(0, n, BATCH):
        numbers = range(start, min(start + BATCH, n))
        await app.send_many(QUEUE, [body(number) for number in numbers])


async def kill(app: App, n: int) -> Measured:
    """Let all that is queued die."""
    last = asyncio.Event()
    watch = Watch(n * ATTEMPTS, last.set)

    # All of them fail by one cause: the brake would hold them back.
    @app.handler(QUEUE, policy=NO_WAIT, brake=None)
    async def handle(order: dict[str, Any]) -> None:
        watch.hit()
        boom()

    async def dead() -> Measured:
        await last.wait()
        await until_empty(app)
        return watch.stop(n)

    return await working(app, dead)


async def working(app: App, until: Callable[[], Awaitable[Measured]]) -> Measured:
    """Work until that is so."""
    stop = asyncio.Event()
    work = asyncio.create_task(app.work(stop))
    try:
        async with asyncio.timeout(DEADLINE):
            return await until()
    finally:
        stop.set()
        must_be(await work, 0, "exit code")


async def office(app: App) -> Replay:
    """Where campaigns are started and run."""
    engine = await app.engine()
    return Replay(
        await app.letters(),
        engine.broker,
        SystemClock(),
        SystemDice(),
        engine.ledger,
        atomic_replay=engine.atomic_replay,
    )


async def left(app: App) -> int:
    """How many messages have not left their mailbox yet."""
    engine = await app.engine()
    return sum(
        queue.ready + queue.delayed + queue.claimed + queue.suspects
        for queue in await engine.broker.queues()
    )


async def until_empty(app: App) -> None:
    """Wait until the store says that nothing is left."""
    deadline = time.monotonic() + DEADLINE
    while await left(app):
        must_be(time.monotonic() < deadline, True, "in time")
        await asyncio.sleep(0.001)


def _on_file(
    run: Callable[[App, int], Awaitable[Measured]],
) -> Callable[[Path, int, str], Measured]:
    async def opened(url: str, n: int) -> Measured:
        async with App(url, office_durability="kill-safe") as app:
            return await run(app, n)

    def on_file(folder: Path, n: int, synchronous: str) -> Measured:
        url = f"sqlite:///{folder}/ours.db?synchronous={synchronous}"
        return asyncio.run(opened(url, n))

    return on_file


if __name__ == "__main__":
    play(
        {
            "enqueue": _on_file(enqueue),
            "enqueue-bulk": _on_file(enqueue_bulk),
            "happy": _on_file(happy),
            "poison": _on_file(poison),
            "replay": _on_file(replay),
            "confirm": _on_file(confirm),
        }
    )
