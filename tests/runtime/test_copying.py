"""Copies of letters, where a dead-letter mailbox does not want them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

from deadletter import DeadLetter, DLQPolicy
from deadletter.core.errors import Conflict, NotFound, Refused, Unavailable
from deadletter.core.events import Buried, CopyFailed, OutOfReach
from deadletter.core.message import Message
from rig import Rig, fails

POLICY = DLQPolicy(max_attempts=1, dead_queue="orders-dlq")


async def buried_beside(
    rig: Rig, *bodies: str, before: Callable[..., None], policy: DLQPolicy = POLICY
) -> Any:
    """Bury messages while something comes before each sending of copies."""

    @rig.app.handler("orders", policy=policy)
    async def handle(body: str) -> None:
        raise ValueError(body)

    async with rig.app:
        engine: Any = await rig.app.engine()
        original = engine.broker.sink

        class Picky:
            async def send(self, messages: Sequence[Message]) -> None:
                before(messages)
                await original("orders-dlq").send(messages)

        engine.broker.sink = lambda to: Picky() if to == "orders-dlq" else original(to)
        await rig.app.send_many("orders", list(bodies))
        async with rig.working():
            await rig.drained("orders")
            copies = await engine.broker.source("orders-dlq").receive(limit=10, wait=0, lease=10)
            letters = await rig.letters()
    return {copy.message.body for copy in copies}, letters


@pytest.mark.parametrize("error", [Refused, NotFound, Conflict])
async def test_a_copy_that_is_refused_holds_up_neither_its_message_nor_others(
    error: type[Exception],
) -> None:
    def picky(messages: Sequence[Message]) -> None:
        if any(message.body == b"bad" for message in messages):
            raise error("not this one")

    rig = Rig()
    copies, letters = await buried_beside(rig, "a", "bad", "c", before=picky)

    assert copies == {b"a", b"c"}
    assert len(letters) == len(rig.seen(Buried)) == 3
    (failed,) = rig.seen(CopyFailed)
    bad = next(letter for letter in letters if letter.message.body == b"bad")
    assert failed == CopyFailed(
        mailbox="orders", letter_id=bad.id, to="orders-dlq", text="not this one"
    )


async def test_a_dead_mailbox_out_of_reach_is_waited_for() -> None:
    step = fails(2, lambda: Unavailable("nobody answers"))

    rig = Rig()
    copies, _ = await buried_beside(rig, "a", before=lambda _: step())

    assert copies == {b"a"}
    assert [e.what for e in rig.seen(OutOfReach)] == ["mailbox orders-dlq"] * 2
    assert rig.seen(CopyFailed) == []


async def test_a_policy_may_make_copies_in_a_format_of_its_own() -> None:
    class Loud(DLQPolicy, frozen=True):
        def dead_copy(self, letter: DeadLetter) -> Message:
            copy = super().dead_copy(letter)
            if letter.message.body == b"odd":
                raise KeyError("no such field")
            return structs.replace(copy, body=letter.message.body.upper())

    rig = Rig()
    copies, letters = await buried_beside(
        rig, "a", "odd", before=lambda _: None, policy=Loud(max_attempts=1, dead_queue="orders-dlq")
    )

    assert copies == {b"A"}
    assert {letter.message.body for letter in letters} == {b"a", b"odd"}
    (failed,) = rig.seen(CopyFailed)
    assert failed.text == "dead_copy raised KeyError: 'no such field'"
