"""Defects that the origin had, held against ours through the public client."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from deadletter.core.errors import ConfigError, Conflict, DeadLetterError
from deadletter.testing.fakes import eventually
from systems.leasequeue.rig import WITHIN, Queues, Server, payloads

FULL = 4096  # bytes: no file of the store may grow beyond them


# ---- D1: `dead: true` deleted the item instead of moving it ----


async def test_d1_dead_true_reaches_the_dead_queue(queues: Queues) -> None:
    await queues.create_pair(max_attempts=10)
    await queues.produce(b"hopeless", b"fine")

    item = await queues.die()

    (dead,) = await queues.items("dead")
    assert (dead.payload, dead.source_id) == (b"hopeless", item.id)
    assert payloads(await queues.items()) == [b"fine"]


# ---- D2: the last allowed attempt was moved away under its consumer ----


async def test_d2_a_running_last_attempt_is_left_to_its_consumer(queues: Queues) -> None:
    await queues.create_pair(max_attempts=1)
    await queues.create("short", dead_queue="dead", lease_timeout=0.1, expire_timeout=0.1)
    await queues.produce(b"last chance")
    item = await queues.lease()
    await queues.produce(b"stale", queue="short")
    # This one dies of age alone: when it is there, a sweep has seen all there is.
    await eventually(lambda: _count(queues, "dead", 1), within=WITHIN)

    (still,) = await queues.items()
    assert (still.id, still.is_leased) == (item.id, True)
    await queues.complete(item)

    assert payloads(await queues.items("dead")) == [b"stale"]


# ---- D3: without attempts left, it was leased once more ----


async def test_d3_an_item_without_attempts_left_is_not_leased_again(queues: Queues) -> None:
    await queues.create_pair(max_attempts=1)
    await queues.produce(b"once")
    await queues.retry(await queues.lease())

    assert await queues.leases(wait=0.3) == ()
    assert payloads(await queues.items("dead")) == [b"once"]


# ---- D4: a storage error was logged, and the client told that all was well ----


@contextmanager
def full(server: Server) -> Iterator[None]:
    """No room for the files of a server any more; the system refuses its writes."""
    size = resource.RLIMIT_FSIZE
    before = resource.prlimit(server.pid, size)
    resource.prlimit(server.pid, size, (FULL, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, size, before)


@pytest.mark.parametrize("stored", ["sqlite"], indirect=True)
async def test_d4_a_storage_error_is_an_error_to_the_caller(victim: Server, doomed: Queues) -> None:
    await asyncio.to_thread(victim.start)
    await doomed.create_pair(max_attempts=1)
    await doomed.produce(b"before")

    with full(victim), pytest.raises(DeadLetterError):
        await doomed.produce(b"refused")
    await doomed.produce(b"after")

    assert payloads(await doomed.items()) == [b"before", b"after"]


@pytest.mark.parametrize("stored", ["sqlite"], indirect=True)
async def test_d4_a_move_that_fails_leaves_the_item_and_is_done_later(
    victim: Server, doomed: Queues
) -> None:
    """R2: a failing produce to the dead queue loses nothing, and is tried again."""
    await asyncio.to_thread(victim.start)
    await doomed.create_pair(max_attempts=1, lease_timeout=3.0)
    await doomed.produce(b"asked", b"abandoned")
    asked, abandoned = await doomed.leases()

    with full(victim):
        with pytest.raises(DeadLetterError):
            await doomed.retry(asked, dead=True)
        # The sweep tries, too, and says why it could not.
        await eventually(lambda: victim.told("out-of-reach"), within=WITHIN)
        there = await doomed.items()
        assert payloads(there) == [b"asked", b"abandoned"]
        assert await doomed.items("dead") == []

    await eventually(lambda: _count(doomed, "dead", 2), within=WITHIN)
    dead = await doomed.items("dead")
    assert {item.source_id for item in dead} == {asked.id, abandoned.id}
    assert await doomed.items() == []
    told = victim.told("out-of-reach")[0]
    assert (told["level"], told["what"]) == ("error", "items")
    assert f"dead queue {doomed.name('dead')}" in told["text"]
    assert "disk" in told["text"]


@pytest.mark.parametrize("stored", ["postgresql"], indirect=True)
@pytest.mark.xdist_group("postgresql_server")
@pytest.mark.engines
async def test_d4_so_is_a_database_that_went_away(
    victim: Server, doomed: Queues, request: pytest.FixtureRequest
) -> None:
    await asyncio.to_thread(victim.start)
    await doomed.create_pair()
    await doomed.produce(b"before")
    database = request.getfixturevalue("postgresql_server")
    await asyncio.to_thread(database.kill)
    try:
        with pytest.raises(DeadLetterError):
            await doomed.produce(b"refused")
    finally:
        await asyncio.to_thread(database.start)

    await eventually(lambda: _answers(doomed), within=WITHIN)
    assert payloads(await doomed.items()) == [b"before"]


async def _answers(queues: Queues) -> bool:
    try:
        await queues.info()
    except DeadLetterError:
        return False
    return True


# ---- D5: what was in a dead queue expired or ran out, and was deleted ----


async def test_d5_dead_items_neither_expire_nor_run_out(queues: Queues) -> None:
    limits = {"lease_timeout": 0.3, "expire_timeout": 0.3, "max_attempts": 1}
    await queues.create_pair(dead=limits)
    await queues.produce(b"keep me")
    item = await queues.die()

    assert (await queues.lease("dead")).attempts == 1
    # What is leased from now on is held long enough to be called dead in time.
    await queues.update("dead", lease_timeout=60.0, expire_timeout=60.0)
    second = await queues.lease("dead")  # over all its limits
    await queues.retry(second, queue="dead", dead=True)
    third = await queues.lease("dead")

    assert (second.attempts, third.attempts) == (2, 3)
    (stored,) = await queues.items("dead")
    assert stored.source_id == item.id


# ---- D6: chains from the other end, deletion in use, and a timer that slept ----


async def test_d6_a_chain_is_seen_from_both_ends(queues: Queues) -> None:
    await queues.create("C")
    await queues.create("B")
    await queues.create("A", dead_queue="B")

    with pytest.raises(ConfigError):
        await queues.update("B", dead_queue="C")


async def test_d6_a_dead_queue_in_use_is_not_deleted(queues: Queues) -> None:
    await queues.create_pair()

    with pytest.raises(Conflict):
        await queues.delete("dead")


async def test_d6_each_of_several_scheduled_items_comes_in_time(queues: Queues) -> None:
    await queues.create("jobs")
    start = datetime.now(UTC)
    times = {
        payload: start + timedelta(seconds=seconds)
        for payload, seconds in ((b"second", 1.0), (b"first", 0.7), (b"third", 1.3))
    }
    for payload, at in times.items():
        await queues.produce(payload, enqueue_at=at)

    while times:
        item = await queues.lease()  # nothing else happens meanwhile
        assert datetime.now(UTC) >= times.pop(item.payload)


async def test_d6_what_was_scheduled_before_a_restart_comes_by_itself(
    victim: Server, doomed: Queues
) -> None:
    await asyncio.to_thread(victim.start)
    await doomed.create("jobs")
    await doomed.produce(b"later", enqueue_at=datetime.now(UTC) + timedelta(seconds=1))
    await asyncio.to_thread(victim.kill)
    await asyncio.to_thread(victim.start)

    assert (await doomed.lease()).payload == b"later"


async def _count(queues: Queues, queue: str, count: int) -> bool:
    return await queues.count(queue) == count
