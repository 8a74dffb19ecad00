"""Consumers that die over a transaction, again and again, as processes do."""

from functools import partial

import pytest

from deadletter import State
from deadletter.core.failure import Reason
from deadletter.testing.fakes import eventually
from relayer.settings import DEAD_QUEUE, QUEUE
from stage import Stage
from systems.relayer.rig import SOON, Relay, address

pytestmark = pytest.mark.xdist_group("sqs_server")


async def test_messages_that_kill_every_consumer_end_in_the_dead_letter_queue(relay: Relay) -> None:
    """SQS counts the deaths: after three receives nobody gets the message again."""
    relay.environment |= {
        "LEASE_MS": "2000",
        "DLQ_LEASE_MS": "2000",  # the last poll of a dead consumer may still take it
        "RELAYER_TIMEOUT_MS": "60000",
    }
    to = address()
    await relay.stub.fail(to, status=503, delay=60, times=9)
    id_ = await relay.ask(to=to)
    seen = []
    with Stage() as stage:
        environment = relay.environment | {"HEALTH_PORT": str(stage.port())}
        for number in range(1, 4):
            consumer = stage.process("relayer", "consumer", env=environment)
            await eventually(partial(asked, relay, id_, number), within=SOON)
            consumer.kill()
            seen.append((await relay.status(id_))["status"])
        assert await relay.depth(DEAD_QUEUE) == 0
        stage.process("relayer", "consumer", env=environment)
        told = await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)
        await relay.drained(QUEUE)

    assert seen == ["processing"] * 3
    assert await relay.stub.requests(id_) == 3
    assert (told["errorCode"], told["errorCategory"]) == ("RECEIVED_TOO_OFTEN", "RETRYABLE")
    async with relay.consuming():
        letter = await relay.letter_of(id_)
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert (letter.head.state, letter.head.attempts) == (State.PENDING, 3)
    assert await relay.queues() == {QUEUE, DEAD_QUEUE}


async def asked(relay: Relay, id: str, times: int) -> bool:
    """Whether the relayer below has been asked so often, and has yet to answer."""
    return await relay.stub.requests(id) == times
