"""The queues are BullMQ's: producers and workers in Node use them as well."""

from typing import Any

import pytest

from courier.replay import Desk, Wish
from courier.settings import DLQ, MAIN
from deadletter import State
from deadletter.core.letter import By
from deadletter.testing.fakes import eventually
from servers.node import Node, connection
from systems.courier.rig import Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

EVENT = {
    "eventId": "evt_7",
    "eventType": "shipment.status.updated",
    "idempotencyKey": "courier-n:evt_7",
    "traceId": "req_node",
    "payload": {"shipmentId": "shp_7", "status": "delivered"},
}
KEY = "courier-n:evt_7"


def told(rig: Rig, queue: str) -> dict[str, Any]:
    """What a script in Node must know."""
    return {**connection(rig.settings.queue_url), "queue": queue}


async def added(node: Node, rig: Rig, event: dict[str, Any]) -> None:
    """Let a producer in Node add an event to the main queue."""
    job = {"name": event["eventType"], "data": event}
    await node.run("add", **told(rig, MAIN), jobs=[job])


async def test_an_event_queued_by_a_producer_in_node_is_delivered_once(
    node: Node, rig: Rig
) -> None:
    await rig.work()
    for _ in range(2):
        await added(node, rig, EVENT)
        await rig.until("processed", KEY)

    await eventually(lambda: "duplicate" in rig.fates(), within=20)
    (seen,) = rig.stand.seen
    assert (seen.event_id, seen.key, seen.trace_id) == ("evt_7", KEY, "req_node")
    assert seen.attempt == 1


async def test_a_worker_in_node_reads_what_died_from_the_dead_letter_queue(
    node: Node, rig: Rig
) -> None:
    rig.fault(status=504, code="DOWNSTREAM_TIMEOUT", message="slow")
    await added(node, rig, EVENT)

    await rig.work()
    async with node.running("work", **told(rig, DLQ), how="complete") as reader:
        job = await reader.said("job")
        await reader.said("completed")

    dead = job["data"]
    dead_at = dead.pop("deadLetteredAt")
    assert dead_at.endswith("Z")
    assert dead == {
        "eventId": "evt_7",
        "idempotencyKey": KEY,
        "traceId": "req_node",
        "attemptCount": 3,
        "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
        "terminalReasonMessage": "answered 504: slow",
        "attemptHistory": [
            {"attempt": n, "outcome": "failed", "errorCode": "DOWNSTREAM_TIMEOUT"}
            for n in (1, 2, 3)
        ],
        "payloadSnapshot": EVENT["payload"],
    }
    # What a reader does with the copy is its own affair: the letter stays.
    assert (await rig.letter()).head.state is State.PENDING


async def test_an_event_from_node_that_died_is_replayed_to_its_end(node: Node, rig: Rig) -> None:
    rig.fault(status=422, message="validation failed")
    await added(node, rig, EVENT)
    await rig.work()
    await rig.until_letter(State.PENDING)
    rig.stand.faults.clear()

    desk = Desk(await rig.office.engine())
    await desk.replay(Wish(limit=1, by=By("anna", "mended"), wait=20))

    assert (await rig.letter()).head.state is State.REPLAYED
    assert (await rig.ledger(KEY))["state"] == "processed"
    assert [one.status for one in rig.stand.seen] == [422, 200]


class TestRetriesThere:
    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"RETRY_MAX_ATTEMPTS": "4", "RETRY_BACKOFF_BASE_MS": "1"}

    async def test_a_worker_in_node_retries_what_the_gateway_queued(
        self, node: Node, rig: Rig
    ) -> None:
        await rig.report()

        async with node.running("work", **told(rig, MAIN), how="fail") as worker:
            tried = [await worker.said("job") for _ in range(4)]

        assert [one["attemptsMade"] for one in tried] == [0, 1, 2, 3]
        assert tried[0]["name"] == "shipment.status.updated"
        assert tried[0]["data"]["eventId"] == "evt_123"
        assert tried[0]["opts"]["attempts"] == 4
        seen = await node.run("look", **told(rig, MAIN), ids=[tried[0]["id"]])
        assert [job["state"] for job in seen["jobs"]] == ["failed"]
