"""A message that is stored other than it was sent is buried, and never handled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis.asyncio as redis_client

from deadletter.app import App
from deadletter.brokers.nats import messages as nats_packing
from deadletter.brokers.rabbitmq import messages as rabbitmq_packing
from deadletter.brokers.redis import engine as redis_packing
from deadletter.core.letter import LetterHead
from deadletter.core.message import Message
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from engines.postgresql_time import a_database

KINDS = [
    pytest.param(kind, marks=pytest.mark.xdist_group(f"{kind}_server"))
    for kind in ("postgresql", "redis", "nats", "rabbitmq")
]


@asynccontextmanager
async def an_app(kind: str, request: Any, place: Path) -> AsyncIterator[App]:
    server = request.getfixturevalue(f"{kind}_server")
    if kind == "postgresql":
        async with a_database(server.url) as url, App(url) as app:
            yield app
        return
    async with App(server.url, office=f"sqlite:///{place}/office.db") as app:
        yield app


async def tampered(kind: str, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a message whose body is another one where it is stored."""
    message = Message(id="m-1", body=b"pay 100", sent_at=SystemClock().now())
    sink = (await app.engine()).broker.sink("checked")
    if kind == "postgresql":
        await sink.send([message])
        connection = await asyncpg.connect(app.url)
        await connection.execute("UPDATE deadletter.messages SET body = 'pay 900'")
        await connection.close()
        return
    if kind == "redis":
        await sink.send([message])
        client = redis_client.Redis.from_url(app.url)
        for seq, stored in (await client.hgetall("dlq:{checked}:bodies")).items():
            changed = stored.replace(b"pay 100", b"pay 900")
            await client.hset("dlq:{checked}:bodies", seq, changed)
        await client.aclose()
        return
    module = {"nats": nats_packing, "rabbitmq": rabbitmq_packing}[kind]
    with monkeypatch.context() as patch:  # as if it had been another body
        patch.setattr(module, "checksum", lambda *parts, headers=(): 12345)
        await sink.send([message])


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_that_were_changed_in_storage_are_buried_as_corrupt(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[bytes] = []
    async with an_app(kind, request, tmp_path) as app:

        @app.handler("checked")
        async def handle(body: bytes) -> None:
            handled.append(body)

        await tampered(kind, app, monkeypatch)
        await app.send("checked", b"whole")
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        letters = await app.letters()

        async def heads() -> list[LetterHead]:
            return list((await letters.find()).heads)

        await eventually(heads, within=30.0)
        (head,) = await heads()
        stop.set()
        assert await working == 0

    assert handled == [b"whole"]
    assert head.code == "CORRUPT"
    assert "checksum" in head.reason_text


def test_a_checksum_costs_what_is_stored_already_nothing() -> None:
    message = Message(id="m-1", body=b"x" * 100, sent_at=SystemClock().now())
    stored = redis_packing.packed(message)

    without = stored[:-9]  # as it was stored before there were checksums
    without = bytes((without[0] - 1,)) + without[1:]

    said = [[b"1", b"2"], [stored, without], [], []]
    found = redis_packing.deliveries("orders", "token", said, first=None)

    assert [one.message for one in found] == [message, message]
    assert not any(one.corrupt for one in found)


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_any_bit_that_turned_in_a_stored_message_is_seen(at: int) -> None:
    message = Message(id="m-1", body=b"x" * 100, sent_at=SystemClock().now())
    stored = bytearray(redis_packing.packed(message))
    stored[at] ^= 4

    said = [[b"1"], [bytes(stored)], [], []]
    (found,) = redis_packing.deliveries("orders", "token", said, first=None)

    assert found.corrupt
