"""Partitions that fail: writes go to healthy ones, and errors name the dead queue."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg

from deadletter.core.errors import DeadLetterError
from deadletter.testing.fakes import eventually
from systems.leasequeue.rig import WITHIN, Queues, Server, payloads

# The storage itself rejects writes to partition 0 of one queue, as damaged pages do.
SQLITE = """
CREATE TRIGGER broken_{verb} BEFORE {verb} ON items
WHEN NEW.partition = 0 AND NEW.queue = (SELECT id FROM lease_queues WHERE name = '{queue}')
BEGIN SELECT RAISE(ABORT, 'page is damaged'); END
"""
POSTGRESQL = """
CREATE FUNCTION deadletter.broken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.partition = 0 AND NEW.queue = (
            SELECT id FROM deadletter.lease_queues WHERE name = '{queue}')
    THEN RAISE EXCEPTION 'page is damaged' USING ERRCODE = 'data_corrupted'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER broken BEFORE INSERT OR UPDATE ON deadletter.items
FOR EACH ROW EXECUTE FUNCTION deadletter.broken()
"""


async def damage(server: Server, queue: str) -> None:
    """Have the storage reject writes to partition 0 of a queue."""
    if server.store.startswith("sqlite"):
        path = Path(server.store.removeprefix("sqlite:///"))
        await asyncio.to_thread(_damage_file, path, queue)
        return
    connection = await asyncpg.connect(server.store)
    try:
        await connection.execute(POSTGRESQL.format(queue=queue))
    finally:
        await connection.close()


def _damage_file(path: Path, queue: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=WITHIN)) as connection:
        for verb in ("INSERT", "UPDATE"):
            connection.execute(SQLITE.format(queue=queue, verb=verb))


async def failures(queues: Queues, queue: str) -> list[int]:
    return [one.failures for one in await queues.client.stats(queues.name(queue))]


async def test_failures_count_before_load(victim: Server, doomed: Queues) -> None:
    """R2.94: the empty partition fails, so the loaded one is chosen."""
    await asyncio.to_thread(victim.start)
    await doomed.create_pair(dead={"partitions": 2}, max_attempts=1)
    await doomed.bring(None, b"load", partition=1)
    await damage(victim, doomed.name("dead"))
    await doomed.produce(b"poison")
    item = await doomed.lease()

    try:
        await doomed.retry(item)  # partition 0 has less load, and fails
    except DeadLetterError:
        assert await failures(doomed, "dead") == [1, 0]
        assert payloads(await doomed.items()) == [b"poison"]  # nothing is lost
        await doomed.retry(item)

    assert await doomed.items() == []
    assert await doomed.items("dead", 0) == []
    assert payloads(await doomed.items("dead", 1)) == [b"load", b"poison"]


async def test_a_sweep_that_fails_goes_to_the_healthy_partition(
    victim: Server, doomed: Queues
) -> None:
    """R2.94, R2.111: by itself; the error in the log names the dead queue and the cause."""
    await asyncio.to_thread(victim.start)
    await doomed.create_pair(dead={"partitions": 2}, max_attempts=1, lease_timeout=0.5)
    await doomed.bring(None, b"load", partition=1)
    await damage(victim, doomed.name("dead"))
    await doomed.produce(b"1", b"2")
    await doomed.leases()

    await eventually(lambda: _count(doomed, "dead", 3), within=WITHIN)

    assert payloads(await doomed.items("dead", 1)) == [b"load", b"1", b"2"]
    (told, *_) = victim.told("out-of-reach")
    assert told["level"] == "error"
    assert f"dead queue {doomed.name('dead')}" in told["text"]
    assert "page is damaged" in told["text"]


async def test_produced_items_go_to_the_healthy_partition(victim: Server, doomed: Queues) -> None:
    await asyncio.to_thread(victim.start)
    await doomed.create(partitions=2)
    await doomed.bring(None, b"load", queue="jobs", partition=1)
    await damage(victim, doomed.name("jobs"))

    confirmed = 0
    for _ in range(4):
        try:
            await doomed.produce(b"x")
        except DeadLetterError:
            assert await failures(doomed, "jobs") == [1, 0]
        else:
            confirmed += 1

    assert confirmed == 3
    assert len(await doomed.items("jobs", 1)) == 4
    assert await failures(doomed, "jobs") == [1, 0]


async def _count(queues: Queues, queue: str, count: int) -> bool:
    return await queues.count(queue) == count
