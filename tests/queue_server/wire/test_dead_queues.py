"""
What the plan of the lease queue asks of dead letter queues, through the wire.

Every test runs on every engine and in both forms, and looks only at what a client
can see.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deadletter.core.events import ItemDeleted, ItemMoved
from deadletter.testing.fakes import eventually
from queue_server.wire.wire_rig import Said, Served, Wire

pytestmark = pytest.mark.slow


async def _refused(call: Any, code: int, text: str) -> None:
    with pytest.raises(Said) as said:
        await call
    assert said.value.code == code
    assert text in said.value.message


async def _dies_by_retries(wire: Wire) -> str:
    """Lease and give back until it is gone; the id it had last."""
    last = ""
    for attempt in (1, 2):
        (item,) = await wire.lease()
        assert item["attempts"] == attempt
        last = item["id"]
        await wire.retry(item)
    return last


# ---- which queues can be dead queues ----


async def test_a_dead_queue_must_exist(wire: Wire) -> None:
    await _refused(wire.create(dead_queue="nowhere"), 400, "does not exist")
    with pytest.raises(Said, match="create it first"):
        await wire.create(dead_queue="nowhere")
    await _refused(wire("queues.info", queue_name="jobs"), 404, "jobs")


async def test_a_queue_cannot_be_its_own_dead_queue(wire: Wire) -> None:
    await _refused(wire.create(dead_queue="jobs"), 400, "cannot reference itself")
    await wire.create()
    await _refused(
        wire("queues.update", queue_name="jobs", dead_queue="jobs"), 400, "cannot reference itself"
    )


async def test_a_dead_queue_cannot_have_its_own(wire: Wire) -> None:
    await wire.create("C")
    await wire.create("B", dead_queue="C")

    await _refused(wire.create("A", dead_queue="B"), 400, "cannot have its own dead_queue")
    await wire.create("A")
    await _refused(
        wire("queues.update", queue_name="A", dead_queue="B"), 400, "cannot have its own dead_queue"
    )


async def test_nor_can_a_queue_in_use_as_one_be_given_one(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create("jobs", dead_queue="dead")
    await wire.create("elsewhere")

    await _refused(wire("queues.update", queue_name="dead", dead_queue="elsewhere"), 400, "dead")
    assert (await wire("queues.info", queue_name="dead"))["dead_queue"] == ""


async def test_a_valid_dead_queue_is_taken(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create("jobs", dead_queue="dead")

    assert (await wire("queues.info", queue_name="jobs"))["dead_queue"] == "dead"


async def test_a_queue_in_use_as_dead_queue_is_deleted_by_force_only(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create("jobs", dead_queue="dead")

    with pytest.raises(Said) as said:
        await wire("queues.delete", queue_name="dead")
    assert said.value.code in {400, 409}
    await wire("queues.delete", queue_name="dead", force=True)

    await _refused(wire("queues.info", queue_name="dead"), 404, "dead")
    assert (await wire("queues.info", queue_name="jobs"))["dead_queue"] == ""


# ---- what is moved ----


async def test_an_item_out_of_attempts_is_moved(wire: Wire, served: Served) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=2)
    await wire.produce("poison", reference="r-1", kind="job", encoding="text")

    last = await _dies_by_retries(wire)

    (dead,) = await wire.items("dead")
    assert await wire.items() == await wire.scheduled() == []
    assert dead["source_id"] == last != dead["id"]
    assert (dead["attempts"], dead["is_leased"]) == (0, False)
    assert (dead["reference"], dead["kind"], dead["encoding"]) == ("r-1", "job", "text")
    # It does not expire silently. In protobuf, no time is the zero time of Go.
    assert dead.get("expire_deadline", "0001-01-01T00:00:00Z") == "0001-01-01T00:00:00Z"
    (event,) = served.seen(ItemMoved)
    assert (event.item_id, event.death, event.to) == (last, "attempts", "dead")


async def test_an_item_whose_last_lease_expired_is_moved(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=1, lease_timeout="200ms")
    await wire.produce("abandoned")
    (item,) = await wire.lease()

    (dead,) = await wire.lease(queue="dead")  # which is woken by the move

    (stored,) = await wire.items("dead")
    assert stored["id"] == dead["id"]
    assert stored["source_id"] == item["id"]
    assert await wire.items() == []


async def test_a_running_last_attempt_is_not_taken_away(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=1)
    await wire.produce("last chance")
    (item,) = await wire.lease()
    await wire("queue.reload", queue_name="jobs")  # which tends to everything

    (stored,) = await wire.items()
    assert stored["is_leased"]
    await wire.complete(item)

    assert await wire.items() == await wire.items("dead") == []


async def test_an_item_without_attempts_left_is_not_leased_again(wire: Wire) -> None:
    await wire.create(max_attempts=1)
    await wire.produce("once")
    (item,) = await wire.lease()
    await wire.retry(item)

    await _refused(wire.lease(within="100ms"), 454, "no items are in the queue")


async def test_an_expired_item_is_moved(wire: Wire, served: Served) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", lease_timeout="50ms", expire_timeout="100ms")
    await wire.produce("stale")

    (dead,) = await wire.lease(queue="dead")

    assert await wire.items() == []
    assert dead["bytes"] == "c3RhbGU="  # "stale" in base64
    assert [event.death for event in served.seen(ItemMoved)] == ["expired"]


async def test_dead_true_moves_whatever_attempts_remain(wire: Wire, served: Served) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=10)
    await wire.produce("hopeless")
    (item,) = await wire.lease()

    await wire.retry(item, dead=True)

    (dead,) = await wire.items("dead")
    assert dead["source_id"] == item["id"]
    assert await wire.items() == []
    assert [event.death for event in served.seen(ItemMoved)] == ["asked"]


async def test_without_a_dead_queue_it_is_deleted_with_a_warning(
    wire: Wire, served: Served
) -> None:
    await wire.create("unrelated")
    await wire.create(max_attempts=2)
    await wire.produce("poison")

    last = await _dies_by_retries(wire)

    assert await wire.items() == await wire.items("unrelated") == []
    assert await wire.scheduled() == []
    (event,) = served.seen(ItemDeleted)
    assert (event.mailbox, event.item_id, event.death) == ("jobs", last, "attempts")


async def test_an_expired_one_is_deleted_with_its_own_reason(wire: Wire, served: Served) -> None:
    await wire.create(lease_timeout="50ms", expire_timeout="100ms")
    await wire.produce("stale")

    await eventually(lambda: served.seen(ItemDeleted))

    assert served.seen(ItemDeleted)[0].death == "expired"
    assert await wire.items() == []


async def test_items_of_a_dead_queue_neither_expire_nor_run_out(wire: Wire) -> None:
    await wire.create("dead", lease_timeout="400ms", expire_timeout="400ms", max_attempts=1)
    await wire.create(dead_queue="dead", max_attempts=1)
    await wire.produce("keep me")
    (item,) = await wire.lease()
    await wire.retry(item)

    for attempt in (1, 2, 3):
        (dead,) = await wire.lease(queue="dead")
        assert dead["attempts"] == attempt
        if attempt == 2:
            await wire.retry(dead, queue="dead")  # otherwise left to run out

    (stored,) = await wire.items("dead")
    assert stored["source_id"] == item["id"]


# ---- done once, whatever happens ----


def _imported(source_id: str, payload: str = "eA==") -> dict[str, Any]:
    return {"source_id": source_id, "payload": payload}


async def test_an_import_keeps_the_source_id(wire: Wire) -> None:
    await wire.create("dead")

    got = await wire("storage/items.import", queue_name="dead", items=[_imported("abc")])

    (stored,) = await wire.items("dead")
    assert stored["source_id"] == "abc"
    assert [item["id"] for item in got["items"]] == [stored["id"]]


async def test_the_same_source_id_is_taken_once(wire: Wire) -> None:
    await wire.create("dead")

    for _ in range(2):
        items = [_imported("abc"), _imported("abc")]
        await wire("storage/items.import", queue_name="dead", items=items)

    (stored,) = await wire.items("dead")
    assert stored["source_id"] == "abc"


async def test_the_limit_mode_is_an_option_of_a_queue(wire: Wire) -> None:
    await wire.create(max_attempts=1, limit_mode="exceeded")
    await wire.produce("x")
    await wire("queues.update", queue_name="jobs", reference="changed")
    info = await wire("queues.info", queue_name="jobs")

    (first,) = await wire.lease()
    await wire.retry(first)
    (second,) = await wire.lease()

    assert info["limit_mode"] == "exceeded"
    assert second["attempts"] == 2


async def test_the_default_limit_mode_is_not_sent(wire: Wire) -> None:
    """Clients of other servers do not know the field, and JSON readers may reject it."""
    await wire.create()

    assert "limit_mode" not in await wire("queues.info", queue_name="jobs")


async def test_items_without_a_source_have_no_source_id(wire: Wire) -> None:
    await wire.create()
    await wire.produce("plain")
    await wire("storage/items.import", queue_name="jobs", items=[{"payload": "eA=="}])

    assert [item["source_id"] for item in await wire.items()] == ["", ""]


async def test_the_source_of_a_consumed_item_is_free_for_one_import(wire: Wire) -> None:
    await wire.create("dead", requested_partitions=2)
    await wire.create(dead_queue="dead", max_attempts=1)
    await wire.produce("poison")
    (item,) = await wire.lease()
    await wire.retry(item)
    (dead,) = await wire.lease(queue="dead")
    await wire.complete(dead, queue="dead")

    for partition in (0, 1):
        await wire(
            "storage/items.import",
            queue_name="dead",
            partition=partition,
            items=[_imported(item["id"])],
        )

    (imported,) = await wire.items("dead")
    assert imported["source_id"] == item["id"]
    assert await wire.items("dead", partition=1) == []


async def test_dead_items_come_in_the_order_they_died(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=1)
    for number in range(3):
        await wire.produce(f"{number}")
    first, second, third = await wire.lease(3)

    for item in (third, first, second):
        await wire.retry(item)

    found = await wire.items("dead")
    assert [one["source_id"] for one in found] == [third["id"], first["id"], second["id"]]
    assert [one["id"] for one in found] == sorted(one["id"] for one in found)


async def test_a_scheduled_item_can_die_too(wire: Wire) -> None:
    await wire.create("dead")
    await wire.create(dead_queue="dead", max_attempts=1)
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    await wire.produce("later", enqueue_at=soon.isoformat())
    assert len(await wire.scheduled()) == 1

    (item,) = await wire.lease()
    assert datetime.now(UTC) >= soon
    await wire.retry(item)

    (dead,) = await wire.items("dead")
    assert dead["source_id"] == item["id"]
