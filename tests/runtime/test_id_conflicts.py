"""One id or key, two bodies: the second is kept for a person to look at."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from deadletter.core.events import Buried
from deadletter.core.failure import Reason
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import By, DeadLetter, State
from deadletter.core.message import Delivery
from deadletter.core.policy import DLQPolicy
from deadletter.observe.metrics import Metrics
from deadletter.office.replay import Replay
from deadletter.system import SystemClock, SystemDice
from rig import Rig

BY = By("anna", "looked at it")


@pytest.fixture(params=["memory", "sqlite"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    on_disk = request.param == "sqlite"
    return Rig(f"sqlite:///{tmp_path}/shop.db" if on_disk else "memory://")


def handle_all(rig: Rig, **options: Any) -> list[bytes]:
    """Register a handler that fails on `bad`; gives the bodies that it has handled."""
    handled: list[bytes] = []

    @rig.app.handler("orders", idempotent=True, policy=DLQPolicy(max_attempts=1), **options)
    async def handle(delivery: Delivery) -> None:
        if delivery.message.body == b"bad":
            raise ValueError("bad")
        handled.append(delivery.message.body)

    return handled


async def send(rig: Rig, body: bytes, **options: Any) -> None:
    """Send, and wait until it has been worked."""
    await rig.app.send("orders", body, **options)
    await rig.drained("orders")


async def replay_all(rig: Rig) -> None:
    engine = await rig.app.engine()
    replay = Replay(await rig.app.letters(), engine.broker, SystemClock(), SystemDice())
    campaign = await replay.start("is:open", BY)
    await replay.run(campaign.id)
    await rig.drained("orders")


async def by_body(rig: Rig) -> dict[bytes, DeadLetter]:
    return {letter.message.body: letter for letter in await rig.letters()}


async def test_another_body_under_a_handled_key_becomes_a_letter(rig: Rig) -> None:
    handled = handle_all(rig)

    async with rig.working():
        await send(rig, b"10 EUR", id="a", idempotency_key="pay-1")
        await send(rig, b"99 EUR", id="b", idempotency_key="pay-1")
        await send(rig, b"99 EUR", id="b", idempotency_key="pay-1")
        (letter,) = await rig.letters()
        tally = (await rig.queue("orders")).tally

    assert handled == [b"10 EUR"]
    assert (letter.message.body, letter.message.id) == (b"99 EUR", "b")
    assert (letter.head.reason, letter.head.conflict) == (Reason.ID_CONFLICT, True)
    assert (letter.head.code, letter.head.attempts) == ("ID_CONFLICT", 0)
    assert "idempotency key was handled before" in letter.head.reason_text
    assert (tally["buried"], tally.get("duplicate", 0)) == (2, 0)
    first, again = rig.seen(Buried)
    assert (first.reason, first.conflict, first.is_new) == (Reason.ID_CONFLICT, True, True)
    assert not again.is_new


async def test_another_body_under_a_handled_id_becomes_a_letter(rig: Rig) -> None:
    handled = handle_all(rig)

    async with rig.working():
        for body in (b"one", b"two", b"three"):
            await send(rig, body, id="a")
        letters = await by_body(rig)

    assert handled == [b"one"]
    assert set(letters) == {b"two", b"three"}
    assert all(letter.head.conflict for letter in letters.values())
    assert "message id was handled before" in letters[b"two"].head.reason_text


async def test_the_same_body_under_a_handled_key_is_a_duplicate(rig: Rig) -> None:
    handled = handle_all(rig)

    async with rig.working():
        await send(rig, b"10 EUR", id="a", idempotency_key="pay-1")
        await send(rig, b"10 EUR", id="b", idempotency_key="pay-1")
        tally = (await rig.queue("orders")).tally
        letters = await rig.letters()

    assert (handled, letters, tally["duplicate"]) == ([b"10 EUR"], [], 1)


async def test_where_bodies_may_differ_another_body_is_a_duplicate(rig: Rig) -> None:
    handled = handle_all(rig, bodies_may_differ=True)

    async with rig.working():
        await send(rig, b"10 EUR at 8:00", idempotency_key="pay-1")
        await send(rig, b"10 EUR at 8:01", idempotency_key="pay-1")
        tally = (await rig.queue("orders")).tally
        letters = await rig.letters()

    assert (handled, letters) == ([b"10 EUR at 8:00"], [])
    assert tally["duplicate"] == 1


async def test_a_replayed_id_conflict_is_handled(rig: Rig) -> None:
    handled = handle_all(rig)

    async with rig.working():
        await send(rig, b"one", id="a")
        await send(rig, b"two", id="a")
        await replay_all(rig)
        (letter,) = await rig.letters()
        await send(rig, b"one", id="a")
        await send(rig, b"two", id="a")
        after = await rig.letters()

    assert handled == [b"one", b"two"]
    assert letter.head.state is State.REPLAYED
    assert [one.head.state for one in after] == [State.REPLAYED]


async def test_an_edited_letter_that_was_replayed_is_no_conflict(rig: Rig) -> None:
    handled = handle_all(rig)

    async with rig.working():
        await send(rig, b"bad", id="a")
        (letter,) = await rig.letters()
        store = await rig.app.letters()
        mended = replace(letter.message, body=b"good")
        await store.edit(letter.id, mended, revision=letter.head.revision, by=BY)
        await replay_all(rig)
        await send(rig, b"bad", id="a")  # delivered again: its ack was lost
        (after,) = await rig.letters()
        await send(rig, b"other", id="a")
        letters = await by_body(rig)

    assert handled == [b"good"]
    assert after.head.state is State.REPLAYED
    assert letters[b"other"].head.reason is Reason.ID_CONFLICT


async def test_the_id_of_a_conflict_covers_its_body(rig: Rig) -> None:
    handle_all(rig)

    async with rig.working():
        await send(rig, b"one", id="a")
        await send(rig, b"two", id="a")
        (letter,) = await rig.letters()

    assert letter.id == letter_id("orders", "", "a", body_digest(b"two"))


async def test_conflicts_are_counted(rig: Rig) -> None:
    handle_all(rig)
    registry = CollectorRegistry()
    metrics = Metrics(registry)

    async with rig.working():
        await send(rig, b"one", id="a")
        await send(rig, b"two", id="a")
        await send(rig, b"bad", id="a")
        for event in rig.events:
            metrics(event)

    name, labels = "dlq_id_conflicts_total", {"mailbox": "orders"}
    assert registry.get_sample_value(name, labels) == 2
