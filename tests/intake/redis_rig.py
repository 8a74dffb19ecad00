"""Frameworks on a Redis server, and what they left on it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from deadletter.brokers.redis.drain import Frameworks
from deadletter.intake.dialects import LINEAGE as LINEAGE_NAMES
from deadletter.intake.dialects import PACKED
from deadletter.wiring.foreign import opened_foreign
from intake.rig import raw, recorded
from servers import Server

LINEAGE_TEXTS = LINEAGE_NAMES - {PACKED}
LINEAGE = frozenset(name.encode() for name in LINEAGE_TEXTS)


def without_lineage(envelope: bytes) -> bytes:
    """An envelope of Celery without our headers in it, and otherwise as it is."""
    told = json.loads(envelope)
    for name in LINEAGE_TEXTS:
        del told["headers"][name]
    return json.dumps(told).encode()


@pytest.fixture
async def client(redis_server: Server) -> AsyncIterator[Any]:
    client = Redis.from_url(redis_server.url)
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
async def frameworks(redis_server: Server, client: Any) -> AsyncIterator[Frameworks]:
    async with opened_foreign(redis_server.url) as foreign:
        assert isinstance(foreign, Frameworks)
        yield foreign


async def restore(client: Any, name: str) -> None:
    """Put back into Redis what a framework wrote there."""
    for one in recorded(name)["keys"]:
        key, value = one["key"], one["value"]
        match one["type"]:
            case "string":
                await client.set(key, raw(value))
            case "list":
                await client.rpush(key, *map(raw, value))
            case "hash":
                await client.hset(key, mapping={raw(f): raw(v) for f, v in value})
            case "zset":
                await client.zadd(key, {raw(m): score for m, score in value})
            case "set":
                await client.sadd(key, *map(raw, value))
            case "stream":
                for at, fields in value:
                    entry = {raw(f): raw(v) for f, v in fields}
                    await client.xadd(key, entry, id=at)
