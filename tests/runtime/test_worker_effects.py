"""What a worker does besides settling: replies, copies, keys, replays."""

from typing import Any

import pytest

from deadletter import Delivery, DLQPolicy, Failure, NoBackoff, Route, State
from deadletter.core.events import Succeeded
from deadletter.core.failure import Decision
from deadletter.core.letter import By
from deadletter.office.replay import Replay
from deadletter.system import SystemClock, SystemDice
from rig import Rig, fails

QUICK = DLQPolicy(max_attempts=3, backoff=NoBackoff())


async def test_handler_results_are_sent_to_reply_to() -> None:
    rig = Rig()

    @rig.app.handler("orders")
    async def handle(body: int) -> dict[str, int]:
        return {"twice": 2 * body}

    async with rig.working():
        sent = await rig.app.send("orders", 21, reply_to="answers")
        await rig.drained("orders")

        engine = await rig.app.engine()
        (reply,) = await engine.broker.source("answers").receive(limit=1, wait=1, lease=10)
        assert reply.message.body == b'{"twice":42}'
        assert reply.message.header("dlq-in-reply-to") == sent


async def test_an_error_reply_comes_once_and_only_when_all_is_over() -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=QUICK)
    async def handle(body: bytes) -> None:
        raise ValueError("no")

    async with rig.working():
        await rig.app.send("orders", b"x", reply_to="answers")
        await rig.drained("orders")

        engine = await rig.app.engine()
        replies = await engine.broker.source("answers").receive(limit=10, wait=1, lease=10)
        assert len(replies) == 1
        assert b"dead-lettered after 3 attempts: no" in replies[0].message.body
        assert len(await rig.letters()) == 1


class InVerse(DLQPolicy, frozen=True):
    def bad_news(self, delivery: Delivery, decision: Decision, failure: Failure) -> object:
        if failure.text == "unspeakable":
            raise LookupError("no words for it")
        return {"alas": f"{failure.text}, {delivery.attempt} times"}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("no", b'{"alas":"no, 2 times"}'),
        ("unspeakable", b"dead-lettered after 2 attempts: unspeakable"),
    ],
)
async def test_bad_news_is_in_the_words_of_the_policy_or_else_in_ours(
    error: str, told: bytes
) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=InVerse(max_attempts=2, backoff=NoBackoff()))
    async def handle(body: bytes) -> None:
        raise ValueError(error)

    async with rig.working():
        await rig.app.send("orders", b"x", reply_to="answers")
        await rig.drained("orders")

        engine = await rig.app.engine()
        (reply,) = await engine.broker.source("answers").receive(limit=10, wait=1, lease=10)
        assert told in reply.message.body
        assert reply.message.header("dlq-error")


async def test_a_letter_is_copied_to_the_dead_letter_mailbox() -> None:
    rig = Rig()
    policy = DLQPolicy(
        max_attempts=1, dead_queue="{mailbox}-dlq", routes=(Route(to="strange", error="KeyError"),)
    )

    @rig.app.handler("orders", policy=policy)
    async def handle(body: str) -> None:
        raise KeyError(body) if body == "odd" else ValueError(body)

    async with rig.working():
        await rig.app.send("orders", "plain")
        await rig.app.send("orders", "odd")
        await rig.drained("orders")

        engine = await rig.app.engine()
        (plain,) = await engine.broker.source("orders-dlq").receive(limit=9, wait=1, lease=10)
        (odd,) = await engine.broker.source("strange").receive(limit=9, wait=1, lease=10)
        ids = {letter.message.body: letter.id for letter in await rig.letters()}
        assert plain.message.header("dlq-id") == ids[b"plain"]
        assert odd.message.header("dlq-id") == ids[b"odd"]


async def test_idempotent_handlers_run_once_per_key() -> None:
    rig, runs = Rig(), []

    @rig.app.handler("orders", idempotent=True)
    async def handle(delivery: Delivery) -> None:
        runs.append(delivery.message.id)

    async with rig.working():
        await rig.app.send("orders", b"x", id="a", idempotency_key="pay-1")
        await rig.drained("orders")
        await rig.app.send("orders", b"x", id="b", idempotency_key="pay-1")
        await rig.drained("orders")

        assert runs == ["a"]
        assert (await rig.queue("orders")).tally["duplicate"] == 1


async def test_a_failed_key_may_be_tried_again() -> None:
    rig = Rig()
    step = fails(2, lambda: ValueError("not yet"))

    @rig.app.handler("orders", idempotent=True, policy=QUICK)
    async def handle(body: bytes) -> None:
        step()

    async with rig.working():
        await rig.app.send("orders", b"x", idempotency_key="pay-1")
        await rig.drained("orders")

        assert len(rig.seen(Succeeded)) == 1
        assert await rig.letters() == []


async def test_a_replayed_copy_is_confirmed_or_returns_to_its_letter() -> None:
    rig, broken = Rig(), True

    @rig.app.handler("orders", policy=DLQPolicy(max_attempts=1))
    async def handle(body: bytes) -> None:
        if broken:
            raise ValueError("bug")

    async with rig.working():
        await rig.app.send("orders", b"x")
        await rig.drained("orders")
        engine = await rig.app.engine()
        replay = Replay(await rig.app.letters(), engine.broker, SystemClock(), SystemDice())
        await _replay_all(replay)
        await rig.drained("orders")
        (again,) = await rig.letters()
        broken = False
        await _replay_all(replay)
        await rig.drained("orders")
        (done,) = await rig.letters()

        assert again.head.state is State.PENDING
        assert again.head.attempts == 2
        assert done.id == again.id
        assert done.head.state is State.REPLAYED
        assert done.head.replays == 2


async def _replay_all(replay: Any) -> None:
    campaign = await replay.start("", by=By("tester", "because"))
    await replay.run(campaign.id)
