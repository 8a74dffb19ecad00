"""What each call does, on every engine and in both forms."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deadletter.testing.fakes import eventually
from queue_server.wire.wire_rig import Said, Wire

pytestmark = pytest.mark.slow


async def _code(call: Any) -> int:
    with pytest.raises(Said) as said:
        await call
    return said.value.code


async def _waiting(wire: Wire) -> int:
    (logical,) = (await wire("queue.stats", queue_name="jobs"))["logical_queues"]
    return int(logical["lease_waiting"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_an_item_is_produced_leased_and_completed(wire: Wire) -> None:
    await wire.create()
    await wire.produce("hello", reference="r", kind="greeting", encoding="text")
    before = datetime.now(UTC)

    (item,) = await wire.lease()

    assert item["bytes"] == "aGVsbG8="
    told = (item["reference"], item["kind"], item["encoding"], item["attempts"])
    assert told == ("r", "greeting", "text", 1)
    left = _time(item["lease_deadline"]) - before
    assert timedelta(seconds=50) < left < timedelta(seconds=70)
    await wire.complete(item)
    assert await wire.items() == []


async def test_bytes_win_over_text(wire: Wire) -> None:
    await wire.create()
    await wire(
        "queue.produce",
        queue_name="jobs",
        request_timeout="5s",
        items=[{"bytes": "AP8=", "utf8": "text"}, {"utf8": "ä"}, {}],
    )

    assert [i["bytes"] for i in await wire.lease(3)] == ["AP8=", "w6Q=", ""]


async def test_items_come_in_the_order_they_were_produced(wire: Wire) -> None:
    await wire.create()
    for number in range(5):
        await wire.produce(f"{number}a", f"{number}b")

    first = await wire.lease(4)
    second = await wire.lease(100)

    stored = [item["id"] for item in await wire.items()]
    assert [item["id"] for item in first + second] == stored == sorted(stored)


async def test_a_completion_is_applied_whole_or_not_at_all(wire: Wire) -> None:
    await wire.create()
    await wire.produce("leased", "not leased")
    (leased,) = await wire.lease()
    waiting = next(i for i in await wire.items() if not i["is_leased"])
    waiting["partition"] = 0

    assert await _code(wire.complete(leased, waiting)) == 409
    assert await _code(wire.complete(leased, {**leased, "id": "nobody"})) == 400
    elsewhere = [{**leased, "partition": 7}]
    assert await _code(wire.complete(*elsewhere)) == 400
    assert len(await wire.items()) == 2

    await wire.complete(leased)
    assert await _code(wire.complete(leased)) == 400  # it is gone now
    assert [item["id"] for item in await wire.items()] == [waiting["id"]]


async def test_a_retry_is_applied_to_all_items_or_none(wire: Wire) -> None:
    await wire.create()
    await wire.produce("leased", "not leased")
    (leased,) = await wire.lease()
    waiting = next(i for i in await wire.items() if not i["is_leased"])

    async def retry(*ids: str) -> None:
        items = [{"id": one} for one in ids]
        await wire("queue.retry", queue_name="jobs", partition=0, items=items)

    assert await _code(retry(leased["id"], waiting["id"])) == 409
    assert await _code(retry(leased["id"], "nobody")) == 400

    (still,) = [item for item in await wire.items() if item["is_leased"]]
    assert still["id"] == leased["id"]


async def test_retried_items_go_to_the_tail(wire: Wire) -> None:
    await wire.create()
    await wire.produce("first", "second")
    (first,) = await wire.lease()

    await wire.retry(first)

    again = await wire.lease(2)
    assert [item["bytes"] for item in again] == ["c2Vjb25k", "Zmlyc3Q="]
    assert [item["attempts"] for item in again] == [1, 2]


async def test_items_due_within_moments_are_due_now(wire: Wire) -> None:
    await wire.create()
    soon = datetime.now(UTC) + timedelta(milliseconds=50)
    await wire.produce("soon", enqueue_at=soon.isoformat())
    await wire.produce("past", enqueue_at="2001-01-01T00:00:00Z")
    await wire.produce("never", enqueue_at="0001-01-01T00:00:00Z")  # as Go has it

    assert await wire.scheduled() == []
    assert len(await wire.lease(3)) == 3


async def test_a_retry_can_be_scheduled(wire: Wire) -> None:
    await wire.create()
    await wire.produce("later")
    (item,) = await wire.lease()
    due = datetime.now(UTC) + timedelta(milliseconds=400)

    await wire.retry(item, retry_at=due.isoformat())

    (scheduled,) = await wire.scheduled()
    assert await wire.items() == []
    assert abs(_time(scheduled["enqueue_at"]) - due) < timedelta(milliseconds=2)
    (again,) = await wire.lease()
    assert datetime.now(UTC) >= due
    assert again["attempts"] == 2


async def test_an_expired_lease_is_given_to_somebody_else(wire: Wire) -> None:
    await wire.create(lease_timeout="200ms")
    await wire.produce("abandoned")
    (item,) = await wire.lease(client="crashed")

    (again,) = await wire.lease(client="other")

    assert again["attempts"] == 2
    assert await _code(wire.complete(item)) in {400, 409}  # it is not theirs any more
    await wire.complete(again)


async def test_a_lease_waits_and_is_woken(wire: Wire) -> None:
    await wire.create()
    waiting = asyncio.create_task(wire.lease(within="1m"))
    await eventually(lambda: _waiting(wire))

    await wire.produce("at last")

    async with asyncio.timeout(5):
        (item,) = await waiting
    assert item["bytes"] == "YXQgbGFzdA=="


async def test_a_lease_that_waited_in_vain_may_be_tried_again(wire: Wire) -> None:
    await wire.create()

    with pytest.raises(Said) as said:
        await wire.lease(within="50ms")

    assert said.value.code == 454
    assert "no items are in the queue" in said.value.message


async def test_a_client_has_one_lease_request_open(wire: Wire) -> None:
    await wire.create()
    first = asyncio.create_task(wire.lease(client="twin", within="1m"))
    await eventually(lambda: _waiting(wire))

    assert await _code(wire.lease(client="twin")) == 400

    await wire.produce("1")
    assert len(await first) == 1


async def test_queues_are_made_changed_and_deleted(wire: Wire) -> None:
    await wire.create(reference="for tests", max_attempts=3, requested_partitions=2, namespace="ns")
    assert await _code(wire.create()) == 409

    info = await wire("queues.info", queue_name="jobs")
    assert (info["lease_timeout"], info["expire_timeout"]) == ("1m0s", "1h0m0s")
    assert (info["max_attempts"], info["requested_partitions"]) == (3, 2)
    assert (info["reference"], info["namespace"]) == ("for tests", "ns")
    assert info["partitions"] == [{"partition": 0}, {"partition": 1}]
    assert _time(info["created_at"]) <= _time(info["updated_at"])

    await wire("queues.update", queue_name="jobs", max_attempts=5)
    changed = await wire("queues.info", queue_name="jobs")
    assert changed["max_attempts"] == 5
    assert changed["reference"] == "for tests"
    assert changed["lease_timeout"] == "1m0s"
    await wire("queues.update", queue_name="jobs", max_attempts=0, reference="")
    changed = await wire("queues.info", queue_name="jobs")
    assert (changed["max_attempts"], changed["reference"]) == (0, "")

    await wire("queues.delete", queue_name="jobs")
    assert await _code(wire("queues.info", queue_name="jobs")) == 404
    assert await _code(wire("queues.delete", queue_name="jobs")) == 404


async def test_partitions_only_grow(wire: Wire) -> None:
    await wire.create(requested_partitions=2)

    await wire("queues.update", queue_name="jobs", requested_partitions=4)
    smaller = wire("queues.update", queue_name="jobs", requested_partitions=1)
    assert await _code(smaller) == 400

    info = await wire("queues.info", queue_name="jobs")
    assert len(info["partitions"]) == 4


async def test_queues_are_listed_from_a_pivot(wire: Wire) -> None:
    for name in ("a", "b", "c", "d"):
        await wire.create(name, namespace="even" if name in "bd" else "")

    async def names(**options: Any) -> list[str]:
        found = await wire("queues.list", **options)
        return [queue["queue_name"] for queue in found["items"]]

    assert await names() == ["a", "b", "c", "d"]
    assert await names(pivot="b", limit=2) == ["b", "c"]
    assert await names(pivot="bb") == ["c", "d"]
    assert await names(namespace="even") == ["b", "d"]


async def test_items_are_listed_from_a_pivot(wire: Wire) -> None:
    await wire.create()
    await wire.produce("1", "2", "3", "4")
    ids = [item["id"] for item in await wire.items()]

    async def listed(**options: Any) -> list[str]:
        return [item["id"] for item in await wire.items(**options)]

    assert await listed(pivot=ids[1], limit=2) == ids[1:3]
    await wire("storage/items.delete", queue_name="jobs", partition=0, ids=[ids[1], "0" * 16])
    assert await listed(pivot=ids[1]) == ids[2:]
    assert await _code(wire.items(partition=9)) == 404
    assert await _code(wire.items(pivot="nonsense")) == 400


async def test_the_stored_item_tells_everything(wire: Wire) -> None:
    await wire.create(max_attempts=7)
    await wire.produce("x", reference="r", kind="k", encoding="e")
    await wire.lease()

    (item,) = await wire.items()

    assert item["is_leased"]
    assert (item["attempts"], item["max_attempts"]) == (1, 7)
    told = (item["reference"], item["kind"], item["encoding"], item["payload"])
    assert told == ("r", "k", "e", "eA==")
    lives = _time(item["expire_deadline"]) - _time(item["created_at"])
    assert abs(lives - timedelta(hours=1)) < timedelta(seconds=1)
    leased = _time(item["lease_deadline"]) - _time(item["updated_at"])
    assert abs(leased - timedelta(minutes=1)) < timedelta(seconds=1)


async def test_stats_say_what_is_there(wire: Wire) -> None:
    await wire.create(requested_partitions=2)
    await wire.produce("1", "2", "3")
    await wire.lease(2)
    later = datetime.now(UTC) + timedelta(hours=1)
    await wire.produce("later", enqueue_at=later.isoformat())

    found = await wire("queue.stats", queue_name="jobs")

    (logical,) = found["logical_queues"]
    partitions = logical["partitions"]
    assert found["queue_name"] == "jobs"
    assert [one["partition"] for one in partitions] == [0, 1]
    assert sum(one["total"] for one in partitions) == 3
    assert sum(one["total_leased"] for one in partitions) == 2
    assert sum(one["scheduled"] for one in partitions) == 1
    assert [one["failures"] for one in partitions] == [0, 0]
    assert any(one["average_age"] != "0s" for one in partitions)


async def test_clearing_leaves_what_is_leased_unless_told(wire: Wire) -> None:
    await wire.create()
    await wire.produce("leased", "waiting")
    await wire.lease()
    later = datetime.now(UTC) + timedelta(hours=1)
    await wire.produce("later", enqueue_at=later.isoformat())

    assert await _code(wire("queue.clear", queue_name="jobs")) == 400
    await wire("queue.clear", queue_name="jobs", queue=True)
    assert [item["is_leased"] for item in await wire.items()] == [True]
    assert len(await wire.scheduled()) == 1

    await wire("queue.clear", queue_name="jobs", scheduled=True)
    assert await wire.scheduled() == []
    await wire("queue.clear", queue_name="jobs", queue=True, destructive=True)
    assert await wire.items() == []


async def test_requests_to_missing_queues_are_not_found(wire: Wire) -> None:
    item = {"id": "0" * 16, "partition": 0}
    for call in (
        wire.produce("1"),
        wire.lease(),
        wire.complete(item),
        wire.retry(item),
        wire.items(),
        wire.scheduled(),
        wire("queue.stats", queue_name="jobs"),
        wire("queue.reload", queue_name="jobs"),
        wire("queue.clear", queue_name="jobs", queue=True),
        wire("queues.update", queue_name="jobs", max_attempts=1),
        wire("storage/items.import", queue_name="jobs", items=[{}]),
        wire("storage/items.delete", queue_name="jobs", ids=["0" * 16]),
    ):
        assert await _code(call) == 404
