"""What failed three times: how it gets to the dead-letter queue, and what ends it."""

import json
from itertools import pairwise

import pytest

from deadletter import State
from deadletter.core.events import LetterHandled, LetterRefused
from deadletter.testing.fakes import eventually
from relayer.consumer import DLQ, MAIN
from relayer.dlq_consumer import read as read_message
from relayer.settings import DEAD_QUEUE, QUEUE
from relayer.values import Status
from servers import Server
from systems.relayer.rig import SOON, Relay, address, body_of
from systems.relayer.tap import tapped

pytestmark = pytest.mark.xdist_group("sqs_server")
CHANGES = (
    "CREATE TABLE changes (id TEXT, status TEXT)",
    """
    CREATE TRIGGER changed AFTER UPDATE ON transactions
    BEGIN INSERT INTO changes VALUES (NEW.id, NEW.status); END
    """,
)


async def moved_by_sqs(relay: Relay, body: str) -> str:
    """A message that is received three times and never deleted; SQS's id of it."""
    id_ = await relay.put(body)
    assert await relay.lost_three_times() == id_
    return id_


async def test_after_three_failures_it_is_in_the_queue_and_the_consumer_ends_it(
    relay: Relay,
) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=9)
    id_ = await relay.ask(to=to)
    async with relay.consuming(frozenset({MAIN})):
        await relay.drained(QUEUE)

    got = await relay.raw.receive_message(
        QueueUrl=relay.url(DEAD_QUEUE), VisibilityTimeout=0, WaitTimeSeconds=1
    )
    (dead,) = got["Messages"]
    assert json.loads(dead["Body"])["transactionId"] == id_
    assert await relay.stub.requests(id_) == 3
    assert (await relay.status(id_))["status"] == "processing"

    # Looking at it was a receive that nobody answered for.
    async with relay.consuming(frozenset({DLQ})):
        told = await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        letter = await relay.letter_of(id_)

    assert told["errorMessage"] == "busy"
    assert await relay.stub.requests(id_) == 3
    assert letter.head.state is State.PENDING
    assert [one.text for one in letter.story()] == ["busy"] * 3


async def test_messages_redriven_by_sqs_are_kept_and_ended(relay: Relay) -> None:
    id_ = await relay.ask()
    await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
    sqs_id = await moved_by_sqs(relay, body_of(id_))
    assert await relay.depth(DEAD_QUEUE) == 1

    async with relay.consuming():
        told = await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        (letter,) = await relay.letters()

    assert (told["errorCode"], told["errorCategory"]) == ("RECEIVED_TOO_OFTEN", "RETRYABLE")
    assert (letter.head.source, letter.head.message_id) == (QUEUE, sqs_id)
    assert json.loads(letter.message.body)["transactionId"] == id_
    assert await relay.stub.requests(id_) == 0


@pytest.mark.parametrize("status", [Status.FAILED, Status.CONFIRMED, Status.MINED])
async def test_finished_transactions_are_only_deleted(relay: Relay, status: Status) -> None:
    id_ = await relay.ask(retryOnFailure=True)
    await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
    await relay.table.heard(id_, status, hash=None, error="said before")
    before = await relay.status(id_)
    for _ in range(2):  # a duplicate as well
        await relay.put(body_of(id_, retryOnFailure=True), DEAD_QUEUE)

    async with relay.consuming():
        await relay.drained(DEAD_QUEUE)
        await eventually(lambda: len(relay.seen(LetterHandled)) == 2, within=SOON)
        letters = await relay.letters()

    assert await relay.status(id_) == before
    assert await relay.stub.requests(id_) == 0
    assert {one.action for one in relay.seen(LetterHandled)} == {"processed"}
    kept = State.PENDING if status is Status.FAILED else State.CLOSED
    assert {letter.head.state for letter in letters} == {kept}


async def test_of_two_dead_copies_one_ends_the_transaction_and_one_does_nothing(
    relay: Relay,
) -> None:
    id_ = await relay.ask()
    await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
    body = body_of(id_)
    message = read_message(body.encode())
    assert message is not None
    assert await relay.table.begin(message, 0)
    for statement in CHANGES:
        await relay.database.run(statement)
    for _ in range(2):
        await relay.put(body, DEAD_QUEUE)

    async with relay.consuming():
        await eventually(lambda: len(relay.seen(LetterHandled)) == 2, within=SOON)
        await relay.drained(DEAD_QUEUE)

    changes = await relay.database.run("SELECT id, status FROM changes")
    assert [tuple(row) for row in changes] == [(id_, "failed")]
    assert {one.action for one in relay.seen(LetterHandled)} == {"processed"}
    assert await relay.stub.requests(id_) == 0


async def test_bodies_that_cannot_be_read_are_kept_as_letters(relay: Relay) -> None:
    id_ = await relay.ask()
    await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
    nonsense = '{"transactionId": 1, "type": "cash"}'
    half = json.dumps({"transactionId": id_, "type": "cash"})
    await relay.put("<not json>")
    await relay.put(half)
    await relay.put(nonsense, DEAD_QUEUE)

    async with relay.consuming():
        told = await relay.becomes(id_, "failed")
        await eventually(lambda: len(relay.seen(LetterHandled)) == 3, within=SOON)
        await relay.drained(QUEUE)
        await relay.drained(DEAD_QUEUE)
        letters = await relay.letters()

    assert {letter.message.body.decode() for letter in letters} == {"<not json>", half, nonsense}
    assert {letter.head.reason for letter in letters} == {"undecodable"}
    assert {letter.head.source for letter in letters} == {QUEUE}
    assert {letter.head.state for letter in letters} == {State.PENDING}
    assert told["errorCategory"] == "NON_RETRYABLE"


@pytest.mark.parametrize("moved", [False, True], ids=["by-us", "by-sqs"])
async def test_nothing_is_deleted_that_could_not_be_recorded(relay: Relay, *, moved: bool) -> None:
    to = address()
    await relay.stub.fail(to, status=503, message="busy", times=9)
    id_ = await relay.ask(to=to)
    if moved:
        await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
        await moved_by_sqs(relay, body_of(id_))
    else:
        async with relay.consuming(frozenset({MAIN})):
            await relay.drained(QUEUE)
    await relay.database.run("ALTER TABLE transactions RENAME TO gone")

    async with relay.consuming():
        await eventually(lambda: len(relay.seen(LetterRefused)) > 1, within=SOON)
        assert await relay.depth(DEAD_QUEUE) == 1
        await relay.database.run("ALTER TABLE gone RENAME TO transactions")
        await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        letters = await relay.letters()

    assert len(letters) == 1
    assert {one.failure.error_type for one in relay.seen(LetterRefused)} == {
        "sqlite3.OperationalError"
    }


async def test_polls_wait_ten_seconds_and_never_overlap(relay: Relay, sqs_server: Server) -> None:
    """On the wire, with the long poll as it is in production."""
    async with tapped(sqs_server.url) as tap:
        environment = {
            name: value.replace(sqs_server.url, tap.url)
            for name, value in relay.environment.items()
        } | {"DLQ_POLL_INTERVAL_MS": "500"}
        async with (
            Relay.opened(environment, relay.raw, relay.stub) as watched,
            watched.consuming(settings=watched.settings),
        ):
            for number in range(3):
                await relay.put(body_of(f"t-{number}"), DEAD_QUEUE)
                await watched.becomes(f"t-{number}", "failed")
            await relay.drained(DEAD_QUEUE)
            await relay.put(body_of("t-3"), DEAD_QUEUE)  # ends the last poll
            await watched.becomes("t-3", "failed")

    polls = [call for call in tap.of("ReceiveMessage", DEAD_QUEUE) if call.asked["WaitTimeSeconds"]]
    assert {call.asked["WaitTimeSeconds"] for call in polls} == {10}
    assert len(polls) >= 4
    for earlier, later in pairwise(polls):
        assert later.began >= earlier.ended
    for earlier, later in pairwise(polls[1:]):  # before the first, the queue is found
        assert later.began - earlier.began >= 0.4  # of 0.5; the wire has its delays
    deleted = tap.of("DeleteMessageBatch", DEAD_QUEUE)
    assert sum(len(call.asked["Entries"]) for call in deleted) == 4
