"""What cannot be read back becomes a letter, and its neighbours are handled."""

import asyncio
from pathlib import Path

from deadletter import App
from deadletter.core.failure import Reason
from deadletter.core.packing import UNREADABLE
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message


async def test_unreadable_messages_are_buried_and_others_are_handled(tmp_path: Path) -> None:
    seen: list[str] = []
    async with App(f"sqlite:///{tmp_path}/shop.db") as app:

        @app.handler("orders")
        async def handle(body: str) -> None:
            seen.append(body)

        engine, letters = await app.engine(), await app.letters()
        # No text: stored without a word, and nobody can read it back.
        await engine.broker.sink("orders").send(
            [a_message(b"a"), a_message(b"b", id="odd", key=3), a_message(b"c")]
        )
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))

        async def is_over() -> bool:
            return len(seen) == 2 and len((await letters.find(limit=9)).heads) == 1

        await eventually(is_over)
        stop.set()
        assert await working == 0

        (head,) = (await letters.find(limit=9)).heads
        (letter,) = await letters.get([head.id])
        assert (head.message_id, head.reason) == ("odd", Reason.UNDECODABLE)
        assert "cannot be read" in head.error_text
        assert letter.message.body == b"b"
        assert letter.message.header(UNREADABLE) is not None
    assert seen == ["a", "c"]
