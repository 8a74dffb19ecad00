"""An answer that cannot be given holds nobody up, and is never wrong."""

from typing import Any

import pytest

from deadletter import DLQPolicy, NoBackoff
from deadletter.core.errors import Refused
from deadletter.core.events import ReplyFailed, Succeeded
from deadletter.testing.fakes import eventually
from rig import Rig


@pytest.mark.parametrize("reply_to", ["", "a b", "x" * 600, "\x00", "~"])
async def test_an_impossible_reply_to_is_told_and_the_worker_goes_on(reply_to: str) -> None:
    rig = Rig()

    @rig.app.handler("orders")
    async def handle(body: int) -> int:
        return body

    async with rig.working():
        await rig.app.send("orders", 1, reply_to=reply_to)
        await rig.drained("orders", within=3)
        await rig.app.send("orders", 2)
        await rig.drained("orders", within=3)

    assert len(rig.seen(ReplyFailed)) == 1
    assert len(rig.seen(Succeeded)) == 2


async def test_no_bad_news_is_sent_of_a_letter_that_was_not_kept() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1, backoff=NoBackoff()), lease=0.2)
    async def handle(body: str) -> None:
        raise ValueError("no")

    async with rig.app:
        engine: Any = await rig.app.engine()
        keep = engine.letters.keep
        refused: list[Any] = []

        async def refuse(letters: Any) -> Any:
            if len(refused) >= 4:
                return await keep(letters)
            refused.append(letters)
            raise Refused("cannot store this")

        engine.letters.keep = refuse
        async with rig.working():
            await rig.app.send("orders", "bad", reply_to="answers")
            await eventually(lambda: len(refused) >= 4)
            await rig.drained("orders")
            replies = await engine.broker.source("answers").receive(limit=10, wait=1, lease=10)

    assert len(replies) == 1
