"""
SQS by hand: aiobotocore, ten to a call, ten calls side by side, nothing around it.

What a consumer on SQS could reach if its own code cost nothing. A failed attempt is
made visible at once; the third is sent to the dead queue with its story, which is
kept in memory until then.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from peers.on_server import play_on_server
from peers.raw import told
from workload import ATTEMPTS, Measured, Poison, Watch, bodies, boom, must_be

TEN = 10  # SQS takes no more at once
CALLS = 10  # side by side: a hundred messages, as our worker asks for
RECEIVED = "ApproximateReceiveCount"


class Queues:
    """A queue and its dead one."""

    def __init__(self, client: Any, queue: str, dead: str) -> None:
        self.client = client
        self.queue = queue
        self.dead = dead


async def happy(url: str, n: int) -> Measured:
    """Drain what is queued."""
    async with _filled(url, n) as queues:
        watch = Watch(n)

        async def handle(taken: Sequence[Any]) -> None:
            for message in taken:
                json.loads(message["Body"])
                watch.hit()
            await _delete(queues.client, queues.queue, taken)

        await _drain(queues.client, queues.queue, handle)
        return watch.stop()


async def poison(url: str, n: int) -> Measured:
    """Every message fails three times, then is dead."""
    async with _filled(url, n) as queues:
        measured = await _kill(queues, n)
        must_be(await _count(queues.client, queues.dead), n, "dead")
        return measured


async def replay(url: str, n: int) -> Measured:
    """Dead letters back to their queue."""
    async with _filled(url, n) as queues:
        await _kill(queues, n)
        watch = Watch(n)

        async def back(taken: Sequence[Any]) -> None:
            for _ in taken:
                watch.hit()
            entries = [{"MessageBody": json.loads(one["Body"])["body"]} for one in taken]
            await _batch(queues.client.send_message_batch, queues.queue, entries)
            await _delete(queues.client, queues.dead, taken)

        await _drain(queues.client, queues.dead, back)
        measured = watch.stop()
        must_be(await _count(queues.client, queues.queue), n, "queued")
        return measured


async def _kill(queues: Queues, n: int) -> Measured:
    watch = Watch(n)
    stories: defaultdict[str, str] = defaultdict(str)

    async def fail(taken: Sequence[Any]) -> None:
        again, spent, letters = [], [], []
        for message in taken:
            json.loads(message["Body"])
            watch.hit()
            attempt = int(message["Attributes"][RECEIVED])
            try:
                boom()
            except Poison as error:
                stories[message["MessageId"]] += told(error, attempt)
            if attempt < ATTEMPTS:
                handle = message["ReceiptHandle"]
                again.append({"ReceiptHandle": handle, "VisibilityTimeout": 0})
            else:
                story = stories.pop(message["MessageId"])
                letter = json.dumps({"body": message["Body"], "history": story})
                letters.append({"MessageBody": letter})
                spent.append(message)
        client = queues.client
        if again:
            await _batch(client.change_message_visibility_batch, queues.queue, again)
        if letters:
            await _batch(client.send_message_batch, queues.dead, letters)
            await _delete(client, queues.queue, spent)

    await _drain(queues.client, queues.queue, fail)
    return watch.stop(n)


async def _drain(
    client: Any, queue: str, handle: Callable[[Sequence[Any]], Awaitable[None]]
) -> None:
    async def receive() -> list[Any]:
        said = await client.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=TEN, MessageSystemAttributeNames=[RECEIVED]
        )
        return list(said.get("Messages", ()))

    while True:
        found = [one for one in await _side_by_side(receive, CALLS) if one]
        if not found:
            return
        await asyncio.gather(*map(handle, found))


async def _side_by_side(call: Callable[[], Awaitable[Any]], times: int) -> list[Any]:
    return await asyncio.gather(*(call() for _ in range(times)))


async def _delete(client: Any, queue: str, taken: Sequence[Any]) -> None:
    entries = [{"ReceiptHandle": one["ReceiptHandle"]} for one in taken]
    await _batch(client.delete_message_batch, queue, entries)


async def _batch(call: Any, queue: str, entries: Sequence[dict[str, Any]]) -> None:
    numbered = [{"Id": str(i), **entry} for i, entry in enumerate(entries)]
    said = await call(QueueUrl=queue, Entries=numbered)
    must_be(said.get("Failed", []), [], "failed")


@asynccontextmanager
async def _filled(url: str, n: int) -> AsyncIterator[Queues]:
    config = AioConfig(max_pool_connections=CALLS, parameter_validation=False)
    async with get_session().create_client(
        "sqs",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=config,
    ) as client:
        made = [
            (await client.create_queue(QueueName=name))["QueueUrl"]
            for name in ("orders", "orders-dead")
        ]
        ready = [{"MessageBody": one.decode()} for one in bodies(n)]
        for start in range(0, n, TEN):
            some = ready[start : start + TEN]
            await _batch(client.send_message_batch, made[0], some)
        yield Queues(client, *made)


async def _count(client: Any, queue: str) -> int:
    name = "ApproximateNumberOfMessages"
    said = await client.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])
    return int(said["Attributes"][name])


if __name__ == "__main__":
    play_on_server(happy, poison, replay)
