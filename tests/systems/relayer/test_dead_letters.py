"""What failed three times: how it gets to the dead-letter queue, and what ends it."""

import json
from itertools import pairwise

import pytest

from deadletter import State
from deadletter.core.events import Buried, FailedForGood, LetterHandled, LetterRefused
from deadletter.core.letter import By
from deadletter.testing.fakes import eventually
from relayer.consumer import DLQ, MAIN
from relayer.settings import DEAD_QUEUE, QUEUE
from relayer.values import Status, read_message
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


async def test_after_three_failures_sqs_itself_moves_the_message(
    relay: Relay, sqs_server: Server
) -> None:
    """The message keeps its id, SQS counts, and nobody sends a copy."""
    async with tapped(sqs_server.url) as tap:
        environment = {
            name: value.replace(sqs_server.url, tap.url)
            for name, value in relay.environment.items()
        }
        to = address()
        await relay.stub.fail(to, status=503, message="busy", times=9)
        id_ = await relay.ask(to=to)
        ((sent,), others) = [await relay.peek(queue) for queue in (QUEUE, DEAD_QUEUE)]
        # That look was a receive: two more are left for the consumer.
        async with (
            Relay.opened(environment, relay.raw, relay.stub) as watched,
            watched.consuming(frozenset({MAIN})),
        ):
            await relay.drained(QUEUE)
    (dead,) = await relay.peek(DEAD_QUEUE)

    assert others == []
    assert dead["MessageId"] == sent["MessageId"]
    assert dead["Attributes"]["DeadLetterQueueSourceArn"].endswith(QUEUE)
    assert json.loads(dead["Body"])["transactionId"] == id_
    assert await relay.stub.requests(id_) == 2
    assert tap.of("SendMessageBatch", QUEUE) == tap.of("SendMessageBatch", DEAD_QUEUE) == []
    assert tap.of("DeleteMessageBatch", QUEUE) == []
    waits = [
        entry["VisibilityTimeout"]
        for call in tap.of("ChangeMessageVisibilityBatch", QUEUE)
        for entry in call.asked["Entries"]
    ]
    # The retry after RETRY_DELAY_MS, the lease while the letter is kept, the release to SQS.
    assert waits == [0, 60, 0]


async def test_a_retryable_error_is_tried_three_times_and_moved(relay: Relay) -> None:
    id_ = await relay.dies()

    (dead,) = await relay.peek(DEAD_QUEUE)
    assert await relay.stub.requests(id_) == 3
    assert dead["Attributes"]["ApproximateReceiveCount"] == "4"  # three, and this one
    assert (await relay.status(id_))["status"] == "processing"


async def test_what_sqs_moved_is_ended_by_the_dlq_consumer(relay: Relay) -> None:
    id_ = await relay.dies()

    async with relay.consuming(frozenset({DLQ})):
        told = await relay.becomes(id_, "failed")

    assert (told["errorCategory"], told["errorMessage"]) == ("RETRYABLE", "busy")
    assert await relay.stub.requests(id_) == 3


async def test_a_processed_dead_message_is_deleted(relay: Relay) -> None:
    id_ = await relay.dies()

    async with relay.consuming(frozenset({DLQ})):
        await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)

    assert await relay.depth(QUEUE) == 0


async def test_one_letter_tells_all_attempts_whoever_keeps_it(relay: Relay) -> None:
    """The worker keeps it, SQS moves the message, and the DLQ consumer finds the letter."""
    id_ = await relay.dies()
    async with relay.consuming(frozenset({DLQ})):
        await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        letter = await relay.letter_of(id_)

    assert (letter.head.state, letter.head.attempts) == (State.PENDING, 3)
    assert [one.text for one in letter.story()] == ["busy"] * 3
    assert len(relay.seen(Buried)) == 1
    assert {one.letter_id for one in relay.seen(LetterHandled)} == {letter.id}


async def test_each_consumer_does_its_part_without_the_other(relay: Relay) -> None:
    id_ = await relay.dies()  # with the main consumer alone
    first = (await relay.status(id_))["status"], await relay.depth(DEAD_QUEUE)

    async with relay.consuming(frozenset({DLQ})):
        await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)

    assert first == ("processing", 1)


async def test_a_letter_that_was_purged_too_early_is_kept_again(relay: Relay) -> None:
    """Its message is in the dead-letter queue: nobody can know that it had a letter."""
    id_ = await relay.dies()
    async with relay.consuming(frozenset({MAIN})) as app:
        letter = await relay.letter_of(id_)
        await (await app.letters()).purge([letter.id], By("carla", "not this one"))
    async with relay.consuming():
        told = await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        again = await relay.letter_of(id_)

    assert told["errorCode"] == "RECEIVED_TOO_OFTEN"
    assert again.id == letter.id


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
    assert (letter.head.attempts, len(relay.seen(Buried))) == (3, 1)
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


async def test_malformed_messages_fail_in_the_table_and_are_deleted(relay: Relay) -> None:
    """None of them reaches the dead-letter queue, and no body is lost."""
    id_ = await relay.ask()
    await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
    half = json.dumps({"transactionId": id_, "type": "cash"})
    strange = json.dumps({"transactionId": "never-seen", "type": "cash"})
    nameless = await relay.put("<not json>")
    await relay.put(half)
    await relay.put(strange)

    async with relay.consuming():
        told = [await relay.becomes(one, "failed") for one in (id_, "never-seen", nameless)]
        await relay.drained(QUEUE)
        letters = await relay.letters()

    rows = await relay.database.run("SELECT id, request FROM transactions WHERE type = 'malformed'")
    assert {one["errorCategory"] for one in told} == {"NON_RETRYABLE"}
    assert {one["errorCode"] for one in told} == {"MALFORMED"}, told
    assert dict(map(tuple, rows)) == {nameless: "<not json>", "never-seen": strange}
    assert len(relay.seen(FailedForGood)) == 3
    assert letters == []
    assert relay.seen(LetterHandled) == []
    assert await relay.depth(DEAD_QUEUE) == 0


async def test_malformed_messages_in_the_dead_letter_queue_are_kept_as_letters(
    relay: Relay,
) -> None:
    sqs_id = await relay.put('{"transactionId": 1}', DEAD_QUEUE)
    moved = await moved_by_sqs(relay, "<not json>")

    async with relay.consuming():
        await relay.becomes(sqs_id, "failed")
        await relay.becomes(moved, "failed")
        await relay.drained(DEAD_QUEUE)
        letters = await relay.letters()

    bodies = {letter.head.message_id: letter.message.body for letter in letters}
    assert bodies == {sqs_id: b'{"transactionId": 1}', moved: b"<not json>"}
    assert {letter.head.source for letter in letters} == {QUEUE}
    assert {letter.head.state for letter in letters} == {State.PENDING}


@pytest.mark.parametrize("moved", [False, True], ids=["failed", "never-reported"])
async def test_nothing_is_deleted_that_could_not_be_recorded(relay: Relay, *, moved: bool) -> None:
    if moved:
        id_ = await relay.ask()
        await relay.raw.purge_queue(QueueUrl=relay.url(QUEUE))
        await moved_by_sqs(relay, body_of(id_))
    else:
        id_ = await relay.dies()
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
