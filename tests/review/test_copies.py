"""A copy in a dead-letter mailbox goes by the id of the letter it is a copy of."""

import pytest

from deadletter import DLQPolicy
from deadletter.core.errors import GiveUp
from rig import Rig


@pytest.mark.parametrize("lost", [False, True])
async def test_the_copy_of_a_letter_set_apart_carries_the_id_it_is_kept_under(lost: bool) -> None:
    rig = Rig()
    policy = DLQPolicy(max_attempts=1, dead_queue="orders-dlq")

    @rig.app.handler("orders", policy=policy)
    async def handle(body: bytes) -> None:
        raise GiveUp("no")

    async with rig.working():
        for body in (b"one", b"another"):
            # An expired one is buried by whoever is first, often the sweep.
            expires_in = 0.0 if lost else None
            await rig.app.send("orders", body, id="reused", expires_in=expires_in)
            await rig.drained("orders")
        engine = await rig.app.engine()
        source = engine.broker.source("orders-dlq")
        copies = await source.receive(limit=10, wait=1, lease=10)
        letters = await rig.letters()

    assert {copy.message.body: copy.message.header("dlq-id") for copy in copies} == {
        letter.message.body: letter.id for letter in letters
    }
    assert len(letters) == 2
