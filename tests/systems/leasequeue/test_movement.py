"""Phase 3 of the plan: what is dead is moved, whole and once, or deleted and told."""

import asyncio
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from deadletter.testing.fakes import eventually
from systems.leasequeue.rig import PLAIN, WITHIN, Queues, Server, imported, payloads, waiting


async def test_the_sweep_moves_items_whose_consumers_never_answer(queues: Queues) -> None:
    await queues.create_pair(max_attempts=2, lease_timeout=0.3)
    await queues.produce(b"poison")
    await queues.lease()
    second = await queues.lease()  # woken when the first lease has run out

    dead = await queues.lease("dead")  # woken by the move

    assert second.attempts == 2
    (stored,) = await queues.items("dead")
    assert (stored.id, stored.source_id) == (dead.id, second.id)
    assert await queues.items() == []


async def test_unlimited_attempts_never_use_up(queues: Queues) -> None:
    await queues.create_pair(max_attempts=0)
    await queues.produce(b"patient")

    for attempt in range(1, 8):
        item = await queues.lease()
        assert item.attempts == attempt
        await queues.retry(item)

    assert await queues.items("dead") == []
    assert len(await queues.items()) == 1


async def test_expire_deadline(queues: Queues) -> None:
    """R2 ExpireDeadline: after a short expiry it is in the dead queue only."""
    await queues.create_pair(lease_timeout=0.5, expire_timeout=0.5)
    (before,) = await queues.bring(None, b"stale", queue="jobs")

    dead = await queues.lease("dead")

    assert dead.payload == b"stale"
    assert before.expire_deadline is not None
    assert datetime.now(UTC) >= before.expire_deadline
    assert await queues.items() == []


async def test_expired_items_are_listed_in_the_dead_queue(queues: Queues) -> None:
    """R2.2, R2.22: beside one that has time left, which stays."""
    await queues.create_pair()
    late = datetime.now(UTC) + timedelta(seconds=0.5)
    (stale,) = await queues.bring(None, b"stale", queue="jobs", item={"expire_deadline": late})
    await queues.produce(b"fresh")

    await eventually(lambda: _holds(queues, "dead", 1), within=WITHIN)

    (dead,) = await queues.items("dead")
    assert (dead.payload, dead.source_id) == (b"stale", stale.id)
    assert payloads(await queues.items()) == [b"fresh"]


async def test_nothing_dead_stays_in_its_queue(queues: Queues) -> None:
    """R2.14: whatever it died of, and with or without a dead queue."""
    limits = {"max_attempts": 1, "lease_timeout": 0.3, "expire_timeout": 1.0}
    await queues.create_pair(**limits)
    await queues.create("alone", **limits)
    for queue in ("jobs", "alone"):
        await queues.produce(b"given back", b"declared dead", b"abandoned", queue=queue)
        back, declared, _ = await queues.leases(queue)
        await queues.produce(b"never leased", queue=queue)
        await queues.retry(back, queue=queue)
        await queues.retry(declared, queue=queue, dead=True)

    for queue in ("jobs", "alone"):
        await eventually(lambda queue=queue: _holds(queues, queue, 0), within=WITHIN)
    assert await queues.count("dead") == 4


async def test_no_dlq_configured(queues: Queues) -> None:
    """R2 NoDLQConfigured: deleted, in no queue."""
    await queues.create("jobs", max_attempts=2)
    await queues.create("unrelated")
    await queues.produce(b"poison")
    for _ in range(2):
        await queues.retry(await queues.lease())

    assert await queues.items() == await queues.items("unrelated") == []


async def test_a_warning_names_the_item_the_limit_and_the_missing_dead_queue(
    queues: Queues, server: Server
) -> None:
    """R2.103."""
    await queues.create("jobs", max_attempts=1)
    await queues.produce(b"poison")
    last = await queues.lease()
    await queues.retry(last)

    await eventually(lambda: _deletions(server, queues), within=WITHIN)
    (said,) = _deletions(server, queues)
    assert (said["level"], said["item_id"]) == ("warning", last.id)
    assert said["death"] == "attempts"
    assert "max_attempts" in said["text"]
    assert "no dead_queue" in said["text"]


async def test_every_deleted_item_is_logged_by_its_id(queues: Queues, server: Server) -> None:
    """R2.103: however many are deleted at once."""
    await queues.create("jobs", max_attempts=1)
    await queues.produce(*[b"poison"] * 200)
    items = await queues.leases()

    await queues.retry(*items)

    await eventually(lambda: len(_deletions(server, queues)) == 200, within=WITHIN)
    assert [said["item_id"] for said in _deletions(server, queues)] == [one.id for one in items]


async def test_no_dlq_configured_and_expired(queues: Queues, server: Server) -> None:
    """The reason told is the true one: the plan's text spoke of attempts always."""
    await queues.create("jobs", lease_timeout=0.1, expire_timeout=0.2, max_attempts=5)
    known = await queues.client.import_items(
        queues.name("jobs"), [imported(None, b"stale"), imported(None, b"stale, too")]
    )

    await eventually(lambda: len(_deletions(server, queues)) == 2, within=WITHIN)

    deletions = _deletions(server, queues)
    assert {said["item_id"] for said in deletions} == {item.id for item in known}
    for said in deletions:
        assert (said["level"], said["death"]) == ("warning", "expired")
        assert "expire_timeout" in said["text"]
        assert "max_attempts" not in said["text"]
        assert "no dead_queue" in said["text"]
    assert await queues.items() == []


def _deletions(server: Server, queues: Queues) -> list[dict[str, Any]]:
    told = server.told("item-deleted")
    return [said for said in told if said["mailbox"] == queues.name("jobs")]


async def test_the_dead_are_in_the_order_of_their_death(queues: Queues) -> None:
    """New ids: the old ones would have put them where they do not belong."""
    await queues.create_pair()
    await queues.produce(b"1", b"2", b"3")
    one, two, three = await queues.leases()

    for item in (three, one, two):
        await queues.retry(item, dead=True)
    await queues.produce(b"4", queue="dead")

    stored = await queues.items("dead")
    assert payloads(stored) == [b"3", b"1", b"2", b"4"]
    assert [item.id for item in stored] == sorted(item.id for item in stored)
    sources = [item.source_id for item in stored]
    assert sources == [three.id, one.id, two.id, None]


async def test_items_that_die_together_are_moved_together(queues: Queues) -> None:
    """To one partition, the one with the least that nobody has."""
    await queues.create_pair(dead={"partitions": 3}, max_attempts=1, lease_timeout=0.3)
    for _ in range(2):  # partitions 0 and 1 have something, 2 has not
        await queues.produce(b"before", queue="dead")
    await queues.produce(*[b"%d" % n for n in range(20)])
    assert len(await queues.leases()) == 20

    await eventually(lambda: _holds(queues, "dead", 22), within=WITHIN)

    by_partition = [payloads(await queues.items("dead", n)) for n in range(3)]
    assert by_partition == [[b"before"], [b"before"], [b"%d" % n for n in range(20)]]
    assert await queues.items() == []


async def test_leased_items_do_not_count_as_load(queues: Queues) -> None:
    """Partition 0 has more in it, and less that nobody has."""
    await queues.create_pair(dead={"partitions": 2})
    for source, partition in (("a", 0), ("b", 0), ("c", 1)):
        await queues.bring(source, partition=partition)
    assert len(await queues.leases("dead", 2)) == 2
    await queues.produce(b"x")

    item = await queues.die()

    assert [one.source_id for one in await queues.items("dead", 1)] == ["c"]
    assert (await queues.items("dead", 0))[-1].source_id == item.id


async def test_a_move_is_not_bound_by_what_clients_may_ask(queues: Queues) -> None:
    """More at once than one request may hold, and larger than one may be."""
    await queues.create_pair(max_attempts=1, lease_timeout=0.5)
    large = b"x" * 6_000_000  # a request to produce has at most 5 MB
    await queues.bring(None, large, queue="jobs", item={"attempts": 1})
    for _ in range(2):
        await queues.produce(*[b"x"] * 600)
    for _ in range(2):  # and at most 1,000 items
        await queues.leases(limit=600)

    await eventually(lambda: _holds(queues, "dead", 1201), within=WITHIN)

    stored = await queues.items("dead")
    assert sum(len(item.payload) == len(large) for item in stored) == 1
    assert len({item.source_id for item in stored}) == 1201


async def test_deaths_are_counted_by_their_reason(queues: Queues, server: Server) -> None:
    before = _deaths(server)
    await queues.create_pair(max_attempts=1)
    await queues.create("short", dead_queue="dead", lease_timeout=0.1, expire_timeout=0.1)
    await queues.produce(b"1")
    await queues.retry(await queues.lease())
    await queues.produce(b"2")
    await queues.die()
    await queues.produce(b"3", queue="short")
    await eventually(lambda: _holds(queues, "dead", 3), within=WITHIN)

    after = _deaths(server)

    assert after - before == Counter({"attempts": 1, "asked": 1, "expired": 1})


def _deaths(server: Server) -> Counter[str]:
    """How many items have been moved, by why."""
    told = httpx.get(f"{server.address}/metrics", timeout=WITHIN, verify=PLAIN).text
    found: Counter[str] = Counter()
    for line in told.splitlines():
        if not line.startswith("dlq_dead_items_total{"):
            continue
        death = re.search(r'death="(\w+)"', line)
        if death is not None and 'outcome="moved"' in line:
            found[death[1]] += int(float(line.split()[-1]))
    return found


async def _holds(queues: Queues, queue: str, count: int) -> bool:
    return await queues.count(queue) == count


async def test_live_items_are_not_moved(queues: Queues) -> None:
    await queues.create_pair(max_attempts=5, lease_timeout=0.2)
    await queues.produce(b"abandoned once")
    await queues.lease()

    again = await queues.lease()

    assert (again.payload, again.attempts) == (b"abandoned once", 2)
    assert await queues.items("dead") == []


async def test_a_scheduled_item_can_die(queues: Queues) -> None:
    await queues.create_pair(max_attempts=1)
    soon = datetime.now(UTC) + timedelta(seconds=0.4)
    await queues.produce(b"later", enqueue_at=soon)

    item = await queues.lease()
    assert datetime.now(UTC) >= soon
    await queues.retry(item)

    (dead,) = await queues.items("dead")
    assert (dead.source_id, dead.enqueue_at) == (item.id, None)


async def test_clients_waiting_on_the_dead_queue_are_woken(queues: Queues, server: Server) -> None:
    await queues.create_pair()
    leasing = asyncio.create_task(queues.lease("dead"))
    dead = queues.name("dead")
    await eventually(lambda: waiting(server.address, dead) == 1, within=WITHIN)
    await queues.produce(b"x")

    item = await queues.die()

    async with asyncio.timeout(5):  # of the minute it would wait
        assert (await leasing).payload == item.payload


async def test_moved_items_are_traceable_and_moved_once(queues: Queues) -> None:
    """Also if somebody repeats the move by hand, while the dead item waits or is leased."""
    await queues.create_pair(dead={"partitions": 2})
    await queues.produce(b"x")
    item = await queues.die()
    repeated = {"payload": b"x", "queue": "dead"}

    assert await queues.bring(item.id, **repeated, partition=1) == []
    (stored,) = await queues.items("dead")
    assert stored.source_id == item.id
    await queues.lease("dead")
    assert await queues.bring(item.id, **repeated, partition=1) == []
    assert await queues.bring(item.id, **repeated, partition=0) == []

    assert len(await queues.items("dead")) == 1
    assert await queues.items("dead", 1) == []


async def test_nothing_leaves_a_dead_queue_by_itself(queues: Queues) -> None:
    """No retry out of it, and not even its own limits apply."""
    limits = {"lease_timeout": 0.1, "expire_timeout": 0.1, "max_attempts": 1}
    await queues.create_pair(dead=limits)
    await queues.produce(b"kept")
    await queues.die()

    for attempt in (1, 2, 3, 4):  # leases that run out, long after its "expiry"
        dead = await queues.lease("dead")
        assert dead.attempts == attempt

    assert await queues.items() == []
    (stored,) = await queues.items("dead")
    assert stored.expire_deadline is None


async def test_an_operator_inspects_and_reprocesses(queues: Queues) -> None:
    """What a dead queue is for: look, mend, send again, and be done with it."""
    await queues.create_pair(max_attempts=1)
    await queues.produce(b"amount: 1O", reference="order-7")
    await queues.retry(await queues.lease())

    (seen,) = await queues.items("dead")
    assert (seen.payload, seen.reference) == (b"amount: 1O", "order-7")
    held = await queues.lease("dead")
    await queues.produce(held.payload.replace(b"O", b"0"), reference=held.reference)
    await queues.complete(held, queue="dead")

    again = await queues.lease()
    assert (again.payload, again.reference) == (b"amount: 10", "order-7")
    assert again.attempts == 1
    await queues.complete(again)
    assert await queues.items() == await queues.items("dead") == []
