"""retryOnFailure: a failure by default; sent back and capped where it is switched on."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter import State
from deadletter.core.events import Buried, LetterHandled, LetterRefused
from deadletter.testing.fakes import eventually
from relayer.consumer import DLQ, MAIN
from relayer.reprocessing import BY
from relayer.settings import DEAD_QUEUE, QUEUE
from systems.relayer.rig import SOON, Relay, address, hasty

pytestmark = pytest.mark.xdist_group("sqs_server")


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"REPROCESSING": "on"}


def actions(relay: Relay) -> list[str]:
    return [one.action for one in relay.seen(LetterHandled)]


async def test_letters_with_retry_on_failure_are_sent_back_and_succeed(relay: Relay) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=3)
    async with relay.consuming() as app:
        id_ = await relay.ask(to=to, retryOnFailure=True)
        told = await relay.becomes(id_, "submitted")
        await relay.drained(QUEUE)
        await relay.drained(DEAD_QUEUE)
        letter = await relay.letter_of(id_)
        (campaign,) = await (await app.letters()).campaigns()

    assert actions(relay) == ["replayed"]
    assert await relay.stub.requests(id_) == 4
    assert told["errorMessage"] is None
    assert (letter.head.state, letter.head.replays) == (State.REPLAYED, 1)
    assert (campaign.actor, campaign.reason) == (BY.actor, BY.reason)


async def test_past_the_limit_it_has_failed_and_is_for_people_only(relay: Relay) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=99)
    async with relay.consuming(settings=replace(hasty(relay.settings), replay_limit=2)):
        id_ = await relay.ask(to=to, retryOnFailure=True)
        told = await relay.becomes(id_, "failed")
        await relay.drained(QUEUE)
        await relay.drained(DEAD_QUEUE)
        letter = await relay.letter_of(id_)

    assert actions(relay) == ["replayed", "replayed", "processed"]
    assert await relay.stub.requests(id_) == 9
    assert (told["errorCode"], told["retryOnFailure"]) == ("HTTP_503", True)
    assert (letter.head.state, letter.head.replays) == (State.QUARANTINED, 2)
    assert len(letter.story()) == 9


async def test_reprocessing_is_the_same_as_failure_unless_switched_on(relay: Relay) -> None:
    usual = replace(hasty(relay.settings), reprocessing=False)
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=3)
    async with relay.consuming(settings=usual):
        id_ = await relay.ask(to=to, retryOnFailure=True)
        told = await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        replays = await relay.replays()

    assert (told["errorMessage"], told["retryOnFailure"]) == ("busy", True)
    assert actions(relay) == ["processed"]
    assert await relay.stub.requests(id_) == 3
    assert replays == []


@pytest.mark.parametrize("wish", [{"retryOnFailure": False}, {"retryOnFailure": None}])
async def test_letters_without_retry_on_failure_are_failed(
    relay: Relay, wish: dict[str, Any]
) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=3)
    async with relay.consuming():
        id_ = await relay.ask(to=to, **wish)
        await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)

    assert actions(relay) == ["processed"]
    assert await relay.stub.requests(id_) == 3


async def test_reprocessed_letters_wait_before_they_are_sent_back(relay: Relay) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=3)
    patient = replace(hasty(relay.settings), replay_delay=2.0)
    async with relay.consuming(settings=patient):
        id_ = await relay.ask(to=to, retryOnFailure=True)
        await relay.becomes(id_, "submitted")
        (item,) = await relay.replays()
        letter = await relay.letter_of(id_)

    (died,) = relay.seen(Buried)
    assert died.letter_id == letter.id
    assert item.sent_at is not None
    assert item.sent_at - letter.head.dead_at >= timedelta(seconds=2)
    assert 0 < relay.seen(LetterRefused)[0].delay <= 2


async def test_a_replay_that_a_crash_cut_off_is_ended_and_none_is_begun_anew(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.runtime.idempotency.BUSY_PAUSE", 0.1)
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=3)
    id_ = await relay.ask(to=to, retryOnFailure=True)
    async with relay.consuming(frozenset({MAIN})):
        await relay.drained(QUEUE)
    async with relay.consuming(frozenset({DLQ})) as app:
        store = await app.letters()
        with monkeypatch.context() as crash:
            crash.setattr(store, "sent_replay", broken)
            await eventually(lambda: relay.seen(LetterRefused), within=SOON)
        await eventually(lambda: actions(relay) == ["replayed"], within=SOON)
    async with relay.consuming():
        await relay.becomes(id_, "submitted")
        await relay.drained(QUEUE)
        (item,) = await relay.replays()

    assert (item.generation, item.outcome) == (1, "confirmed")
    assert await relay.stub.requests(id_) == 4


async def test_a_copy_that_sqs_moved_returns_to_its_letter_and_is_sent_again(relay: Relay) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=3)
    id_ = await relay.ask(to=to, retryOnFailure=True)
    async with relay.consuming(frozenset({MAIN})):
        await relay.drained(QUEUE)
    async with relay.consuming(frozenset({DLQ})):
        await eventually(lambda: actions(relay) == ["replayed"], within=SOON)
        await relay.lost_three_times()
        await eventually(lambda: actions(relay) == ["replayed"] * 2, within=SOON)
        before = await relay.letter_of(id_)
    async with relay.consuming():
        await relay.becomes(id_, "submitted")
        await relay.drained(QUEUE)
        letter = await relay.letter_of(id_)

    assert (before.head.state, before.head.replays) == (State.REPLAYING, 2)
    assert letter.head.state is State.REPLAYED
    assert await relay.stub.requests(id_) == 4


async def broken(*_: object) -> None:
    raise ConnectionResetError("the office went away")
