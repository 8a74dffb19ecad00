"""What a Redis URL opens, and what is refused with a sentence that helps."""

import asyncio
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deadletter.brokers import redis
from deadletter.brokers.redis.engine import connect
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.ports import Acked, Durability, LedgerKey, LedgerState, QueueOptions
from deadletter.testing.fakes import FakeClock, SeededDice, eventually
from deadletter.testing.queue_bench import LEASE, a_message, info
from engines.redis_rig import Tuned, fresh, tuned
from servers import Server
from servers.common import HOST, PASSWORD, free_port


@pytest.mark.parametrize(
    ("url", "help_"),
    [
        ("redis://localhost:6379/first", "not a number"),
        ("redis://localhost:port/0", "cannot be read"),
        ("redis://localhost/0?colour=red", "unknown parameter 'colour'"),
        ("redis://localhost/0?prefix=a{b}", "choose another one"),
        ("redis://localhost/0?prefix=", "choose another one"),
        ("http://localhost", "begin with redis://"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused(url: str, help_: str) -> None:
    with pytest.raises(ConfigError, match=help_):
        await connect(url)


async def test_a_wrong_password_is_told(redis_server: Server) -> None:
    with pytest.raises(ConfigError, match="right user and password") as error:
        await connect(redis_server.url.replace(PASSWORD, "wrong"))

    assert "wrong" not in str(error.value)


async def test_a_missing_database_is_told(redis_server: Server) -> None:
    with pytest.raises(ConfigError, match="no such database"):
        await connect(redis_server.url.removesuffix("/0") + "/99")


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(Unavailable, match="is Redis running"):
        await connect(f"redis://127.0.0.1:{free_port()}/0")


async def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deadletter.brokers.redis.engine")
    monkeypatch.delitem(sys.modules, "deadletter.brokers.redis_common.server")
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)

    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[redis\]'"):
        await redis.open_engine("redis://localhost", clock=FakeClock(), dice=SeededDice())


async def test_a_server_that_evicts_is_refused() -> None:
    settings = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with tuned(*settings) as server, pytest.raises(ConfigError, match="set it to noeviction"):
        await connect(server.url)


@pytest.mark.parametrize(
    ("settings", "durability"),
    [
        ((), Durability.POWER_SAFE),
        (("--appendfsync", "everysec"), Durability.KILL_SAFE),
        (("--appendonly", "no"), Durability.NONE),
    ],
)
async def test_durability_is_what_the_server_is_set_to(
    settings: tuple[str, ...], durability: Durability
) -> None:
    with tuned(*settings) as server:
        engine = await connect(server.url)
        await engine.close()

    assert engine.features.durability is durability


async def test_a_server_that_keeps_its_settings_to_itself_is_believed_little() -> None:
    with tuned("--rename-command", "CONFIG", "") as server:
        engine = await connect(server.url)
        await engine.close()

    assert engine.features.durability is Durability.KILL_SAFE


async def test_when_memory_is_full_sending_waits_and_draining_goes_on() -> None:
    with tuned("--maxmemory", "6mb") as server:
        engine = await connect(server.url)
        sink, source = engine.broker.sink("orders"), engine.broker.source("orders")
        batches = [[a_message(bytes(50_000)) for _ in range(10)] for _ in range(30)]

        async def fill() -> None:
            for batch in batches:
                await sink.send(batch)

        with pytest.raises(Unavailable, match="out of memory"):
            await fill()

        while found := await source.receive(limit=10, wait=0, lease=LEASE):
            assert all(await source.settle([Acked(d) for d in found]))

        await sink.send([a_message()])
        counts = await info(engine.broker)
        await engine.close()
    assert counts.tally["sent"] == counts.tally["handled"] + 1


async def test_a_replica_is_out_of_reach_until_it_is_the_primary() -> None:
    with tuned() as server:
        engine = await connect(server.url)
        sink = engine.broker.sink("orders")
        await sink.send([a_message()])
        await engine._runner.command("REPLICAOF", "127.0.0.1", free_port())

        with pytest.raises(Unavailable, match="replica"):
            await sink.send([a_message()])

        await engine._runner.command("REPLICAOF", "NO", "ONE")
        await sink.send([a_message()])
        counts = await info(engine.broker)
        await engine.close()
    assert counts.ready == 2


async def test_a_unix_socket_will_do() -> None:
    with tuned("--unixsocket", "s.sock") as server:
        path = f"{server.directory}/s.sock"
        engine = await connect(f"redis+unix://:{PASSWORD}@{path}?db=1")
        await engine.broker.sink("orders").send([a_message()])

        assert (await info(engine.broker)).ready == 1
        await engine.close()


def _in_cluster() -> list[str]:
    # Left alone it takes the port 10,000 above, which may be anybody's connection.
    enabled = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
    return [*enabled, "--cluster-port", str(free_port())]


async def _join(one: Tuned, other: Tuned) -> None:
    """Make a cluster of two nodes."""
    for server, slots in ((one, (0, 8191)), (other, (8192, 16383))):
        async with Redis.from_url(server.url) as client:
            await client.execute_command("CLUSTER ADDSLOTSRANGE", *slots)
            bus = one.settings[-1]
            await client.execute_command("CLUSTER MEET", HOST, one.port, bus)
    for server in (one, other):
        async with Redis.from_url(server.url) as client:
            await eventually(lambda c=client: _is_up(c), within=15)


async def _is_up(client: Redis) -> bool:
    said = str(await client.execute_command("CLUSTER INFO"))
    return "'cluster_state': 'ok'" in said and "'cluster_known_nodes': '2'" in said


async def test_the_engine_works_in_a_cluster() -> None:
    with tuned(*_in_cluster()) as one, tuned(*_in_cluster()) as other:
        await _join(one, other)
        url = one.url.removesuffix("/0").replace("redis://", "valkey://")
        engine = await connect(url)
        await engine.broker.create(QueueOptions(name="dead"))
        for name in ("orders", "re{turn}s", "}{", "a", "b", "c", "d"):
            await engine.broker.create(QueueOptions(name=name, dead_queue="dead"))
            source = engine.broker.source(name)
            await engine.broker.sink(name).send([a_message(), a_message()])
            first, _ = await source.receive(limit=5, wait=0, lease=LEASE)
            assert await source.settle([Acked(first)]) == [True]
            assert await source.receive(limit=5, wait=0.05, lease=LEASE) == []
            assert (await info(engine.broker, name)).claimed == 1
            assert await engine.broker.delete(name) == 1
        assert (await engine.broker.sweep()).lost == 0
        assert engine.ledger is not None
        keys = [LedgerKey(name, "k") for name in ("", "a", "}")]
        claims = await engine.ledger.begin(keys, lease=LEASE)
        ended = [(claim, LedgerState.PROCESSED) for claim in claims]
        assert await engine.ledger.finish(ended, ttl=0) == [True] * 3
        assert await engine.ledger.forget() == 3
        await engine.close()


async def test_time_is_the_servers(redis_server: Server) -> None:
    ahead = FakeClock()  # years ahead
    engine = await redis.open_engine(fresh(redis_server.url), clock=ahead, dice=SeededDice())
    await engine.broker.sink("orders").send([a_message()], delay=60.0)
    await engine.broker.sink("orders").send([a_message()])
    source = engine.broker.source("orders")

    (delivery,) = await source.receive(limit=5, wait=0, lease=LEASE)
    swept = await engine.broker.sweep()

    assert delivery.first_received_at is not None
    age = datetime.now(UTC) - delivery.first_received_at
    assert abs(age) < timedelta(seconds=30)
    assert swept.lost == 0
    await engine.close()


async def test_no_name_reaches_into_another_mailbox(redis_server: Server) -> None:
    names = [
        *("a", "a}", "{a}", "{a", "%7Ba%7D", "a:ready", "a*", "a?", "[a]", "}", "{}"),
        *("dlq:{a}:ready", "ä", "\\", '"', "'", "a;FLUSHALL", "$(id)", "%25", "🙂"),
    ]
    engine = await connect(fresh(redis_server.url))
    for name in names:
        await engine.broker.sink(name).send([a_message(id=name)])

    for name in names:
        source = engine.broker.source(name)
        found = await source.receive(limit=9, wait=0, lease=LEASE)
        assert [d.message.id for d in found] == [name]
    await engine.close()


async def test_a_user_needs_no_more_rights_than_the_documentation_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "backends" / "redis.md"
    (rights,) = re.findall(r"own user: `([^`]*)`", page.read_text())
    with tuned() as server:
        async with Redis.from_url(server.url) as client:
            await client.execute_command("ACL", "SETUSER", "anna", "on", ">pw", *rights.split())
        engine = await connect(server.url.replace(f":{PASSWORD}@", "anna:pw@"))
        source = engine.broker.source("orders")
        await engine.broker.create(QueueOptions(name="orders", expire_after=60))
        waiting = asyncio.create_task(source.receive(limit=5, wait=5, lease=LEASE))
        await engine.broker.sink("orders").send([a_message()])
        (delivery,) = await waiting
        assert await source.extend([delivery], lease=LEASE) == [True]
        assert await source.settle([Acked(delivery)]) == [True]
        assert (await engine.broker.sweep()).lost == 0
        assert engine.ledger is not None
        await engine.ledger.begin([LedgerKey("orders", "k")], lease=LEASE)
        assert await engine.ledger.forget(abandoned=1.0) == 0
        assert await engine.broker.delete("orders") == 0
        await engine.close()
    assert engine.features.durability is Durability.POWER_SAFE
