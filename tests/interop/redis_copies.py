"""What frameworks on Redis say of copies that were sent back to them."""

from typing import Any

from msgspec import structs
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from deadletter.brokers.redis.drain import Frameworks
from deadletter.brokers.redis.frameworks import Probe
from deadletter.core.message import Lineage
from deadletter.core.replay_rules import CopyState
from deadletter.intake.dialects import origin_of
from deadletter.wiring.engines import opened
from interop.rig import Shop
from servers import Server


def emptied(server: Server) -> Any:
    """Remove everything from a Redis server; a client of it."""
    client: Any = Redis.from_url(server.url)
    client.flushdb()
    return client


async def state_of_copy(
    shop: Shop, letter_id: str, *, home: str = "shop", results: bool = True, generation: int = 0
) -> CopyState:
    """Ask the framework what became of a copy of a letter, the latest unless told."""
    async with opened(shop.office) as engine:
        store: Any = engine.letters
        [letter] = await store.get([letter_id])
        [latest] = await store.campaigns(limit=1)
        lineage = Lineage(
            letter_id=letter.id, generation=generation or letter.head.replays, campaign=latest.id
        )
        copy = structs.replace(letter.message, lineage=lineage)
    client: Any = AsyncRedis.from_url(shop.url)
    try:
        frameworks = Frameworks(client, results=client if results else None)
        origin = origin_of(copy)
        assert origin is not None
        probe = frameworks.frameworks[origin.kind]
        assert isinstance(probe, Probe)
        since = letter.head.dead_at
        return await probe.state_of(client, home, copy, origin, since)
    finally:
        await client.aclose()
