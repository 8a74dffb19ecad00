"""The dead queues of SQS: drained, kept exactly, sent back."""

import json
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from deadletter.brokers.sqs.drain import SqsAccount
from deadletter.brokers.sqs.engine import connect
from deadletter.brokers.sqs.message_format import own_message
from deadletter.core.errors import NotFound
from deadletter.core.failure import Reason
from deadletter.core.ids import letter_id
from deadletter.core.letter import State
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from deadletter.testing.queue_bench import a_message
from deadletter.wiring.foreign import opened_foreign
from intake.rig import drained, intake, letters, sent_back, store
from servers import Server

_names = count(1)


@pytest.fixture
def url(sqs_server: Server) -> str:
    place = sqs_server.url.removeprefix("http://")
    return f"sqs+http://test:test@{place}?region=eu-west-1"


@pytest.fixture
async def sqs(url: str) -> AsyncIterator[SqsAccount]:
    async with opened_foreign(url) as foreign:
        assert isinstance(foreign, SqsAccount)
        yield foreign


class Queues:
    """A queue and the dead queue that SQS moves its messages to."""

    def __init__(self, sqs: SqsAccount) -> None:
        self.sqs = sqs
        self.name = f"orders{next(_names)}"
        self.dead = f"{self.name}-dlq"

    async def make(self) -> "Queues":
        await self.sqs.call("create_queue", QueueName=self.dead)
        dead = await self.attributes(self.dead)
        policy = {"deadLetterTargetArn": dead["QueueArn"], "maxReceiveCount": "2"}
        await self.sqs.call(
            "create_queue", QueueName=self.name, Attributes={"RedrivePolicy": json.dumps(policy)}
        )
        return self

    async def attributes(self, name: str) -> dict[str, str]:
        answer = await self.sqs.call(
            "get_queue_attributes", QueueUrl=await self.sqs.url(name), AttributeNames=["All"]
        )
        return dict(answer["Attributes"])

    async def send(self, body: str, **attributes: dict[str, Any]) -> None:
        await self.sqs.call(
            "send_message",
            QueueUrl=await self.sqs.url(self.name),
            MessageBody=body,
            MessageAttributes=attributes,
        )

    async def receive(self, name: str) -> list[dict[str, Any]]:
        answer = await self.sqs.call(
            "receive_message",
            QueueUrl=await self.sqs.url(name),
            MaxNumberOfMessages=10,
            VisibilityTimeout=0,
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))

    async def die(self) -> None:
        """Receive without deleting, until SQS has had enough."""
        for _ in range(3):
            await self.receive(self.name)


@pytest.fixture
async def queues(sqs: SqsAccount) -> Queues:
    return await Queues(sqs).make()


async def test_redriven_messages_become_letters_of_their_queue(
    sqs: SqsAccount, queues: Queues, office: MemoryEngine
) -> None:
    await queues.send(
        '{"order": 1}',
        tenant={"DataType": "String", "StringValue": "eu"},
        sum={"DataType": "Number.int", "StringValue": "42"},
        seal={"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    )
    await queues.die()

    [letter] = await drained(sqs.drain(queues.dead), office)

    assert letter.head.source == queues.name
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert letter.head.attempts == 2
    assert letter.message.body == b'{"order": 1}'
    assert letter.message.header("tenant") == "eu"
    assert await sqs.drain(queues.dead).depth() == 0


@pytest.mark.parametrize(
    "body", [b'{"order": 1}', b"\xff\x00", b""], ids=["text", "bytes", "empty"]
)
async def test_a_message_of_ours_is_the_letter_that_its_worker_kept(
    sqs: SqsAccount, url: str, queues: Queues, office: MemoryEngine, body: bytes
) -> None:
    message = a_message(body)
    engine = await connect(f"{url}&retry=visibility", clock=SystemClock(), dice=SeededDice())
    await engine.broker.sink(queues.name).send([message])
    await engine.close()
    await queues.die()

    [letter] = await drained(sqs.drain(queues.dead), office)
    await sent_back(sqs, url, office)
    [back] = await queues.receive(queues.name)

    assert letter.id == letter_id(queues.name, "", message.id)
    assert (letter.message.id, letter.message.body) == (message.id, body)
    assert own_message(back) == (message.id, body, "text" if body.isascii() and body else "base64")


async def test_dead_queues_are_found_by_who_names_them(sqs: SqsAccount, queues: Queues) -> None:
    assert queues.dead in await sqs.places()
    assert queues.name not in await sqs.places()


async def test_a_letter_goes_back_as_it_was(
    sqs: SqsAccount, url: str, queues: Queues, office: MemoryEngine
) -> None:
    attributes = {
        "sum": {"DataType": "Number.int", "StringValue": "42"},
        "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    await queues.send("grüße", **attributes)
    await queues.die()
    await drained(sqs.drain(queues.dead), office)

    await sent_back(sqs, url, office)

    [back] = await queues.receive(queues.name)
    assert back["Body"] == "grüße"
    told = back["MessageAttributes"]
    assert {name: told[name] for name in attributes} == attributes
    assert "dlq-replay" in told
    assert "dlq-found" not in told


async def test_a_copy_that_dies_again_returns_to_its_letter(
    sqs: SqsAccount, url: str, queues: Queues, office: MemoryEngine
) -> None:
    await queues.send("again")
    await queues.die()
    [first] = await drained(sqs.drain(queues.dead), office)
    await sent_back(sqs, url, office)

    await queues.die()
    [second] = await drained(sqs.drain(queues.dead), office)

    assert second.id == first.id
    assert second.head.state is State.PENDING
    assert len(second.story()) == 2


async def test_a_message_drained_twice_is_one_letter_with_one_death(
    sqs: SqsAccount, queues: Queues, office: MemoryEngine
) -> None:
    await queues.send("once")
    await queues.die()
    drain = sqs.drain(queues.dead)
    # Killed between keeping and forgetting; then the time it was ours runs out.
    drain.forget = drain.hand_back  # type: ignore[method-assign]
    await intake(drain, office).once(10)
    [held] = await letters(office)

    [letter] = await drained(sqs.drain(queues.dead), office)

    assert letter == held
    assert len(await letters(office)) == 1


async def test_looking_leaves_everything_where_it_is(
    sqs: SqsAccount, queues: Queues, office: MemoryEngine
) -> None:
    await queues.send("look")
    await queues.die()

    seen = await intake(sqs.drain(queues.dead), office).look(10)

    assert [one.message.body for one in seen] == [b"look"]
    assert await store(office).counts() == {}
    assert await sqs.drain(queues.dead).depth() == 1


async def test_a_queue_that_is_not_there_is_named(sqs: SqsAccount) -> None:
    with pytest.raises(NotFound, match="no queue 'nowhere'"):
        await sqs.drain("nowhere").take(1)
