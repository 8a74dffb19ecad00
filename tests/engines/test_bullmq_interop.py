"""Producers and workers of the real BullMQ share queues with ours."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec

from deadletter.brokers.bullmq.engine import BullEngine
from deadletter.ports import Acked, Fate, Released
from deadletter.testing.queue_bench import a_message, info
from engines.bullmq_pair import LEASE, QUEUE, engine, received, seen, settled, told, url
from servers.node import Node

__all__ = ["engine", "told", "url"]  # fixtures


async def test_a_job_of_theirs_is_a_message(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    data = {"to": "ä@example.org", "number": 1.50, "nested": [None, True]}
    job = {"name": "welcome", "data": data, "opts": {"attempts": 3}}
    (job_id,) = (await node.run("add", **told, jobs=[job]))["ids"]

    (delivery,) = await received(engine, 1)

    message = delivery.message
    assert message.id == delivery.position == job_id
    assert msgspec.json.decode(message.body) == data
    assert message.body.startswith('{"to":"ä@example.org","number":1.5,'.encode())
    assert message.content_type == "application/json"
    assert message.header("bullmq-name") == "welcome"
    opts = msgspec.json.decode(message.header("bullmq-opts") or "")
    assert opts["attempts"] == 3
    assert (delivery.attempt, delivery.spared) == (1, 0)


async def test_all_of_a_bulk_come_in_order_those_with_a_priority_last(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    jobs = [
        {"name": "n", "data": 0, "opts": {"priority": 9}},
        {"name": "n", "data": 1},
        {"name": "n", "data": 2, "opts": {"priority": 3}},
        {"name": "n", "data": 3},
        {"name": "n", "data": 4, "opts": {"delay": 300}},
    ]
    await node.run("add", **told, jobs=jobs, bulk=True)

    found = await received(engine, 5)

    bodies = [d.message.body for d in found]
    late = found[bodies.index(b"4")]  # whenever that was
    assert [body for body in bodies if body != b"4"] == [b"1", b"3", b"2", b"0"]
    assert late.first_received_at is not None
    assert late.first_received_at - late.message.sent_at >= timedelta(seconds=0.3)


async def test_a_message_of_ours_is_a_job(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    headers = (("bullmq-name", b"welcome"), ("tenant", b"\xff"))
    body = b'{ "to": "anna",  "n": [1, 2] }'
    await engine.broker.sink(QUEUE).send([a_message(body, headers=headers)])
    await engine.broker.sink(QUEUE).send([a_message(b"\x00\xff")])

    async with node.running("work", **told, how="complete") as worker:
        first, second = await worker.said("job"), await worker.said("job")

    assert first["name"] == "welcome"
    assert first["data"] == {"to": "anna", "n": [1, 2]}
    assert second["name"] == QUEUE
    assert second["data"] == {"base64": "AP8="}


async def test_a_waiting_worker_of_theirs_wakes_at_once(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    options = {"drainDelay": 30}  # seconds that it would sleep
    async with node.running("work", **told, how="complete", options=options) as worker:
        await worker.said("ready")
        for delay in (0.0, 0.2):
            begun = asyncio.get_running_loop().time()
            await engine.broker.sink(QUEUE).send([a_message()], delay=delay)
            await worker.said("completed")
            assert asyncio.get_running_loop().time() - begun < 5.0


async def test_a_waiting_receive_of_ours_wakes_at_once(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    source = engine.broker.source(QUEUE)
    waiting = asyncio.create_task(source.receive(limit=1, wait=30.0, lease=LEASE))
    jobs = [{"name": "n", "data": 1}]

    await node.run("add", **told, jobs=jobs)

    assert len(await asyncio.wait_for(waiting, 2.0)) == 1


async def test_bullmq_sees_the_outcome_of_our_jobs(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    async with node.running("events", **told) as events:
        await events.said("ready")
        await engine.broker.sink(QUEUE).send([a_message(), a_message()])
        one, two = await received(engine, 2)
        story = '{"number":1,"error_type":"ValueError","text":"no good","stack":"at x"}'
        await settled(engine, Released(one, 0.1, story), Acked(two, Fate.BURIED))
        (again,) = await received(engine, 1)
        await settled(engine, Acked(again))
        await engine.broker.sink(QUEUE).send([a_message()], delay=60.0)

        told_of = [await events.said() for _ in range(16)]

    kinds = [(event["what"], event.get("jobId")) for event in told_of]
    assert kinds == [
        *(("added", "1"), ("waiting", "1"), ("added", "2"), ("waiting", "2")),
        *(("active", "1"), ("active", "2")),
        *(("delayed", "1"), ("failed", "2"), ("retries-exhausted", "2")),
        ("drained", None),  # what is delayed does not count, as with BullMQ
        *(("waiting", "1"), ("active", "1"), ("completed", "1"), ("drained", None)),
        *(("added", "3"), ("delayed", "3")),
    ]
    (failed,) = (event for event in told_of if event["what"] == "failed")
    assert "dead-lettered" in failed["failedReason"]


async def test_both_count_the_same(node: Node, told: dict[str, Any], engine: BullEngine) -> None:
    jobs = [{"name": "n", "data": n} for n in range(4)]
    jobs += [{"name": "n", "data": 4, "opts": {"delay": 60_000}}]
    await node.run("add", **told, jobs=jobs, bulk=True)
    await engine.broker.sink(QUEUE).send([a_message(), a_message()])
    await engine.broker.sink(QUEUE).send([a_message()], delay=60.0)
    found = await received(engine, 3)
    await settled(engine, Released(found[0], 60.0), Acked(found[1]))

    counts = (await seen(node, told))["counts"]
    ours = await info(engine.broker, QUEUE)

    expected = {"waiting": 3, "delayed": 3, "active": 1, "completed": 1, "failed": 0}
    assert {name: counts[name] for name in expected} == expected
    assert (ours.ready, ours.delayed, ours.claimed) == (3, 3, 1)


async def test_attempts_are_counted_across_both(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    opts = {"attempts": 5, "backoff": 1000}
    job = {"name": "n", "data": 1, "opts": opts}
    (job_id,) = (await node.run("add", **told, jobs=[job]))["ids"]
    (first,) = await received(engine, 1)
    story = '{"number":1,"error_type":"ValueError","text":"no good","stack":"at x"}'
    await settled(engine, Released(first, history=story))
    (shown,) = (await seen(node, told, job_id))["jobs"]
    async with node.running("work", **told, how="fail") as worker:
        theirs = await worker.said("job")
        await worker.said("failed")
    (last,) = await received(engine, 1)

    assert (shown["attemptsMade"], shown["failedReason"]) == (1, "ValueError: no good")
    assert shown["stacktrace"] == ["ValueError: no good\nat x"]
    assert (theirs["attemptsMade"], theirs["attemptsStarted"]) == (1, 2)
    # Theirs count for their own limit, ours for our policy.
    assert (last.attempt, last.charged, last.history) == (3, 2, story)


async def test_the_retention_options_of_a_job_are_respected(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    keeping = {"removeOnComplete": False, "removeOnFail": {"count": 1}}
    jobs = [{"name": "n", "data": n, "opts": keeping} for n in range(4)]
    jobs += [{"name": "n", "data": 4}]
    ids = (await node.run("add", **told, jobs=jobs, bulk=True))["ids"]
    found = await received(engine, 5)
    fates = [*[Fate.HANDLED] * 2, *[Fate.BURIED] * 2, Fate.HANDLED]

    for delivery, fate in zip(found, fates, strict=True):
        await settled(engine, Acked(delivery, fate))

    said = await seen(node, told, *ids)
    states = [job and job["state"] for job in said["jobs"]]
    assert states == ["completed", "completed", None, "failed", "completed"]
    assert said["jobs"][3]["attemptsMade"] == 1
    assert (said["counts"]["completed"], said["counts"]["failed"]) == (3, 1)
