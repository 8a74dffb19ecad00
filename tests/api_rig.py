"""An App that works a mailbox until some letters are in its office."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

from deadletter import App, Message
from deadletter.core.backoff import NoBackoff
from deadletter.core.events import Event, HeadersIgnored
from deadletter.core.letter import DeadLetter
from deadletter.core.message import MAX_ATTEMPTS
from deadletter.testing.fakes import eventually


async def letters_of(app: App, count: int) -> list[DeadLetter]:
    """The letters in the office, once there are that many."""
    store = await app.letters()

    async def are_there() -> bool:
        return len((await store.find(limit=100)).heads) >= count

    await eventually(are_there, within=60.0)
    heads = (await store.find(limit=100)).heads
    return await store.get([head.id for head in heads])


async def check_attempt_limits(url: str, office: str | None, mailbox: str) -> None:
    """Send messages with and without a limit of their own; the limits are kept."""
    events: list[Event] = []
    app = App(url, office=office, observe=events.append)
    tried: Counter[bytes] = Counter()

    @app.handler(mailbox, max_attempts=2, backoff=NoBackoff(), brake=None)
    async def fail(body: bytes) -> None:
        tried[body] += 1
        raise TimeoutError("the bank did not answer")

    async with app:
        await fail.send(b"once", max_attempts=1)
        await fail.send_many([b"policy", (b"four", {"max_attempts": 4, "key": "k"})])
        await app.send_many(
            mailbox, [Message(id="m", body=b"three", sent_at=datetime.now(UTC))], max_attempts=3
        )
        hostile = Message(
            id="h",
            body=b"hostile",
            sent_at=datetime.now(UTC),
            headers=((MAX_ATTEMPTS, b"9" * 5000), ("tenant", b"eu")),
        )
        await (await app.engine()).broker.sink(mailbox).send([hostile])
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        letters = await letters_of(app, 5)
        stop.set()
        assert await working == 0

    assert tried == {b"once": 1, b"policy": 2, b"three": 3, b"four": 4, b"hostile": 2}
    assert {one.message.body: one.head.attempts for one in letters} == tried
    kept = {one.message.body: one.message.headers for one in letters}
    assert kept[b"four"] == ((MAX_ATTEMPTS, b"4"),)
    assert kept[b"policy"] == ()
    ignored = {(one.message_id, one.what) for one in events if isinstance(one, HeadersIgnored)}
    assert ("h", "max-attempts") in ignored
