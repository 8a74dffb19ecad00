"""From a request to the chain, and what happens when the relayer below says no."""

import asyncio

import pytest
from msgspec.structs import replace

from deadletter.core.events import Buried, FailedForGood, LetterHandled, Retried
from deadletter.testing.fakes import eventually
from relayer.consumer import MAIN
from relayer.settings import DEAD_QUEUE, QUEUE
from relayer.values import Status
from servers import Server
from servers.common import free_port
from systems.relayer.rig import SOON, Relay, address, body_of, hasty
from systems.relayer.tap import tapped

pytestmark = pytest.mark.xdist_group("sqs_server")

NEVER_WORKS = {
    "insufficient funds": 500,
    "insufficient balance": 500,
    "gas required exceeds allowance": 500,
    "intrinsic gas too low": 500,
    "out of gas": 500,
    "nonce too low": 500,
    "nonce already used": 500,
    "execution reverted": 500,
    "transaction would revert": 500,
    "bad request": 400,
    "who are you": 401,
    "not you": 403,
    "not like that": 422,
}
MAY_PASS = (408, 429, 500, 502, 503, 504)


async def test_transactions_of_both_kinds_go_through(relay: Relay) -> None:
    async with relay.consuming():
        ids = [await relay.ask("direct"), await relay.ask("gasless")]
        told = [await relay.becomes(id_, "submitted") for id_ in ids]
        await relay.drained(QUEUE)

    assert [one["type"] for one in told] == ["direct", "gasless"]
    assert all(one["relayerId"].startswith("r-") for one in told)
    assert [await relay.stub.requests(id_) for id_ in ids] == [1, 1]


async def test_permanent_failures_fail_at_once_without_the_dead_letter_queue(relay: Relay) -> None:
    ids = {}
    for message, status in NEVER_WORKS.items():
        to = address()
        await relay.stub.fail(to, status=status, message=message, times=9)
        ids[await relay.ask(to=to, retryOnFailure=True)] = message
    async with relay.consuming():
        told = {ids[id_]: await relay.becomes(id_, "failed") for id_ in ids}
        await relay.drained(QUEUE)

    assert {message: one["errorMessage"] for message, one in told.items()} == {
        message: message for message in NEVER_WORKS
    }
    assert [await relay.stub.requests(id_) for id_ in ids] == [1] * len(ids)
    assert await relay.depth(DEAD_QUEUE) == 0


async def refused(relay: Relay) -> str:
    """Have a transaction relayed that the relayer below refuses for good; its id."""
    to = address()
    await relay.stub.fail(to, status=500, message="execution reverted", times=9)
    return await relay.ask(to=to)


async def test_a_permanent_error_is_not_tried_again(relay: Relay) -> None:
    id_ = await refused(relay)
    async with relay.consuming():
        await relay.becomes(id_, "failed")
        await relay.drained(QUEUE)

    assert await relay.stub.requests(id_) == 1
    assert relay.seen(Retried) == []


async def test_a_permanent_error_sets_the_status_at_once(relay: Relay) -> None:
    id_ = await refused(relay)
    async with relay.consuming(frozenset({MAIN})):
        told = await relay.becomes(id_, "failed")
        await relay.drained(QUEUE)

    assert (told["errorCategory"], told["errorCode"]) == ("NON_RETRYABLE", "EXECUTION_REVERTED")


async def test_the_message_of_a_permanent_error_is_deleted_and_not_sent_again(
    relay: Relay, sqs_server: Server
) -> None:
    async with tapped(sqs_server.url) as tap:
        environment = {
            name: value.replace(sqs_server.url, tap.url)
            for name, value in relay.environment.items()
        }
        id_ = await refused(relay)
        async with Relay.opened(environment, relay.raw, relay.stub) as watched, watched.consuming():
            await watched.becomes(id_, "failed")
            await watched.drained(QUEUE)

    deleted = [e for call in tap.of("DeleteMessageBatch", QUEUE) for e in call.asked["Entries"]]
    sends = [call for call in tap.calls if call.verb.startswith("SendMessage")]
    assert len(deleted) == 1
    assert sends == []
    assert tap.of("ChangeMessageVisibilityBatch", QUEUE) == []


async def test_a_permanent_error_never_moves_to_the_dead_letter_queue(relay: Relay) -> None:
    id_ = await refused(relay)
    async with relay.consuming(frozenset({MAIN})):
        await relay.becomes(id_, "failed")
        await relay.drained(QUEUE)
        letters = await relay.letters()

    assert len(relay.seen(FailedForGood)) == 1
    assert (letters, relay.seen(Buried)) == ([], [])
    assert await relay.depth(DEAD_QUEUE) == 0


async def test_transient_failures_are_dead_lettered_after_three_attempts(relay: Relay) -> None:
    ids = {}
    for status in MAY_PASS:
        to = address()
        await relay.stub.fail(to, status=status, message="busy", times=9)
        ids[status] = await relay.ask(to=to)
    async with relay.consuming():
        failed = {status: await relay.becomes(id_, "failed") for status, id_ in ids.items()}
        await relay.drained(QUEUE)
        await relay.drained(DEAD_QUEUE)
        letters = [await relay.letter_of(one["transactionId"]) for one in failed.values()]

    for status, letter in zip(MAY_PASS, letters, strict=True):
        told = failed[status]
        assert await relay.stub.requests(told["transactionId"]) == 3
        assert told["errorCategory"] == "RETRYABLE"
        assert told["errorCode"] == letter.head.code == f"HTTP_{status}"
        assert [one.text for one in letter.story()] == ["busy"] * 3
    handled = {one.letter_id for one in relay.seen(LetterHandled)}
    assert handled == {letter.id for letter in letters}
    assert len(relay.seen(Retried)) == 2 * len(MAY_PASS)


async def test_a_relayer_that_does_not_answer_or_is_not_there_may_pass(relay: Relay) -> None:
    slow, hurried = address(), replace(hasty(relay.settings), relayer_timeout=0.5)
    await relay.stub.fail(slow, delay=5.0, times=9)
    async with relay.consuming(settings=hurried):
        late = await relay.becomes(await relay.ask(to=slow), "failed")
    gone = f"http://127.0.0.1:{free_port()}"
    async with relay.consuming(settings=replace(hurried, relayer=gone)):
        refused = await relay.becomes(await relay.ask(), "failed")
        letter = await relay.letter_of(refused["transactionId"])

    assert (late["errorCode"], late["errorCategory"]) == ("TIMEOUT", "RETRYABLE")
    assert refused["errorCategory"] == "RETRYABLE"
    assert refused["errorCode"] == "CONNECTION"
    assert letter.head.attempts == 3


async def test_a_hundred_mixed_transactions_all_come_to_their_end(relay: Relay) -> None:
    """No message is left in any queue, and no transaction without an answer."""
    ends: dict[str, str] = {}
    faults: list[tuple[str, dict[str, object]]] = [
        ("submitted", {"times": 0}),
        ("submitted", {"status": 503, "times": 2}),
        ("failed", {"status": 422, "times": 9}),
        ("failed", {"status": 500, "message": "out of gas", "times": 9}),
        ("failed", {"status": 503, "times": 9}),
    ]
    async with relay.consuming():

        async def ask(end: str, fault: dict[str, object]) -> None:
            to = address()
            await relay.stub.fail(to, **fault)
            ends[await relay.ask(to=to)] = end

        await asyncio.gather(*(ask(*one) for one in faults * 20))
        for id_, end in ends.items():
            await relay.becomes(id_, end)
        await relay.drained(QUEUE)
        await relay.drained(DEAD_QUEUE)
        letters = await relay.letters()

    handled = [one.letter_id for one in relay.seen(LetterHandled)]
    assert len(handled) == len(set(handled)) == 20
    assert {letter.id for letter in letters} == set(handled)
    assert len(relay.seen(FailedForGood)) == 40


async def test_a_lost_answer_does_not_send_a_transaction_twice(relay: Relay) -> None:
    to = address()
    await relay.stub.fail(to, status=502, after=True, times=1)
    async with relay.consuming():
        id_ = await relay.ask(to=to)
        told = await relay.becomes(id_, "submitted")

    assert await relay.stub.requests(id_) == 2  # under one key
    assert told["relayerId"]


async def test_finished_transactions_are_not_submitted_again(relay: Relay) -> None:
    over = {}
    for status in (Status.FAILED, Status.CONFIRMED):
        id_ = await relay.ask()
        assert await relay.table.heard(id_, status, hash=None, error=None)
        over[id_] = status
    async with relay.consuming(frozenset({MAIN})):
        await relay.drained(QUEUE)

    for id_, status in over.items():
        assert (await relay.status(id_))["status"] == status
        assert await relay.stub.requests(id_) == 0


async def test_a_message_of_an_older_client_is_relayed_and_means_no_retry(relay: Relay) -> None:
    await relay.put(body_of("old-1"))
    async with relay.consuming():
        await eventually(lambda: relay.table.get("old-1"), within=SOON)
        told = await relay.becomes("old-1", "submitted")

    assert told["retryOnFailure"] is False


async def test_the_wish_of_the_message_is_saved(relay: Relay) -> None:
    await relay.put(body_of("new-1", retryOnFailure=True))
    async with relay.consuming():
        told = await relay.becomes("new-1", "submitted")

    assert told["retryOnFailure"] is True
