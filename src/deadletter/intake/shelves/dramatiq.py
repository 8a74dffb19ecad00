"""Dramatiq: `dramatiq:<queue>.XQ`, ids by time, with the messages in `.XQ.msgs`."""

from collections.abc import Collection, Sequence

from deadletter.core.dialects import MALFORMED, Found, Origin
from deadletter.core.dialects.values import millis
from deadletter.core.message import Message

from .shelf import Client, job_of, oldest, packed, text


class Dramatiq:
    """Messages are one JSON document each, and go back byte for byte."""

    pattern = "dramatiq:*.XQ"

    def queue_of(self, key: str) -> str:
        """The queue of an `.XQ` key."""
        return key.removeprefix("dramatiq:").removesuffix(".XQ")

    async def depth(self, client: Client, queue: str) -> int:
        """How many are dead."""
        return int(await client.zcard(f"dramatiq:{queue}.XQ"))

    async def read(
        self, client: Client, queue: str, limit: int, held: Collection[bytes]
    ) -> Sequence[Found]:
        """The dead, first died first."""
        dead = f"dramatiq:{queue}.XQ"
        ids = await oldest(client, dead, limit, held)
        if not ids:
            return ()
        bodies = await client.hmget(f"{dead}.msgs", [name for name, _ in ids])
        return [
            Found(
                kind="dramatiq",
                place=f"dramatiq:{queue}",
                source=queue,
                id=text(name),
                body=body or b"",
                about={} if body else {MALFORMED: "its message is not there any more"},
                at=millis(int(score)),
                content_type="application/json",
                raw=packed(name, {}),
                receipt=name,
            )
            for (name, score), body in zip(ids, bodies, strict=True)
        ]

    async def forget(self, client: Client, queue: str, receipts: list[bytes]) -> None:
        """Off the shelf, message and all."""
        dead = f"dramatiq:{queue}.XQ"
        async with client.pipeline(transaction=True) as pipe:
            pipe.zrem(dead, *receipts)
            pipe.hdel(f"{dead}.msgs", *receipts)
            await pipe.execute()

    async def put_back(
        self, client: Client, queue: str, message: Message, origin: Origin
    ) -> None:
        """What its broker does when a message is sent."""
        name = job_of(message, origin).id
        async with client.pipeline(transaction=True) as pipe:
            pipe.hset(f"dramatiq:{queue}.msgs", name, message.body)
            pipe.lrem(f"dramatiq:{queue}", 0, name)
            pipe.rpush(f"dramatiq:{queue}", name)
            await pipe.execute()
