"""Workers that die, queues with limits, flows: BullMQ's workers and ours, together."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from deadletter.brokers.bullmq.engine import BullEngine
from deadletter.ports import Acked, Fate, Note, Released
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message, info
from engines.bullmq_pair import QUEUE, engine, received, seen, settled, told, url
from servers.node import Node

__all__ = ["engine", "told", "url"]  # fixtures


async def test_jobs_of_a_lost_bullmq_worker_become_suspects(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await node.run("add", **told, jobs=[{"name": "n", "data": 1}])
    options = {"lockDuration": 300}
    async with node.running("work", **told, how="hang", options=options) as worker:
        await worker.said("job")
        await worker.kill()
    assert await engine.broker.source(QUEUE).receive(limit=1, wait=0, lease=9.0) == []

    async def is_swept() -> bool:
        return (await engine.broker.sweep()).suspects == {QUEUE}

    await eventually(is_swept)
    (suspect,) = await received(engine, 1, alone=True)

    assert suspect.suspect
    assert (suspect.attempt, suspect.charged) == (2, 1)
    await settled(engine, Acked(suspect))


async def test_a_worker_of_theirs_that_lives_is_left_alone(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await node.run("add", **told, jobs=[{"name": "n", "data": 1}])
    async with node.running("work", **told, how="hang") as worker:
        await worker.said("job")
        await engine.broker.source(QUEUE).receive(limit=1, wait=0, lease=9.0)

        swept = [await engine.broker.sweep() for _ in range(3)]

        assert [found.lost for found in swept] == [0, 0, 0]
        await worker.kill()


async def test_jobs_of_our_lost_worker_go_to_bullmq_workers(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await engine.broker.sink(QUEUE).send([a_message(b'"first"')])
    (lost,) = await received(engine, 1, lease=0.3)
    options = {"stalledInterval": 200, "drainDelay": 1}

    async with node.running("work", **told, how="complete", options=options) as worker:
        job = await worker.said("job")
        await worker.said("completed")

    assert (job["data"], job["attemptsStarted"], job["stalledCounter"]) == ("first", 2, 1)
    assert await engine.broker.source(QUEUE).settle([Acked(lost)]) == [False]


async def stalled_by_them(node: Node, told: dict[str, Any], *, times: int) -> None:
    """Have a worker of theirs find a stalled job, and not work it."""
    # Of a paused queue it takes no jobs, but looks for those that are stalled.
    options = {"stalledInterval": 200, "maxStalledCount": 5}
    await node.run("pause", **told, verb="pause")
    async with (
        node.running("events", **told) as events,
        node.running("work", **told, how="fail", options=options),
    ):
        for _ in range(times):  # this one, after those of before
            await events.said("stalled")
    await node.run("pause", **told, verb="resume")


async def test_jobs_that_bullmq_recovered_are_suspects(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await engine.broker.sink(QUEUE).send([a_message(b'"first"')])
    await received(engine, 1, lease=0.3)
    await stalled_by_them(node, told, times=1)

    source = engine.broker.source(QUEUE)
    usual = await source.receive(limit=1, wait=0, lease=9.0)
    (suspect,) = await received(engine, 1, alone=True, lease=0.3)
    await stalled_by_them(node, told, times=2)
    none = await source.receive(limit=1, wait=0, lease=9.0)
    (again,) = await received(engine, 1, alone=True)

    assert usual == none == []
    assert (suspect.suspect, suspect.attempt, suspect.charged) == (True, 2, 1)
    assert (again.suspect, again.attempt, again.charged) == (True, 3, 2)


async def test_delayed_releases_wake_bullmq_workers_in_time(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await engine.broker.sink(QUEUE).send([a_message(), a_message()])
    (delivery,) = await received(engine, 1)
    options = {"drainDelay": 30}  # seconds that it would sleep
    marker, loop = f"{told['prefix']}:{QUEUE}:marker", asyncio.get_running_loop()

    async def it_sleeps() -> bool:
        marked = await engine._runner.command("EXISTS", marker)
        clients = await engine._runner.command("INFO", "clients")
        return not marked and b"blocked_clients:1" in clients

    async with node.running("work", **told, how="complete", options=options) as worker:
        await worker.said("completed")
        await eventually(it_sleeps)
        begun = loop.time()
        await settled(engine, Released(delivery, 0.3))
        await worker.said("completed")

    assert 0.3 <= loop.time() - begun < 8.0


async def test_a_suspect_that_they_have_run_is_one_no_more(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    opts = (("bullmq-opts", b'{"attempts":3,"backoff":1000}'),)
    await engine.broker.sink(QUEUE).send([a_message(headers=opts)])
    await received(engine, 1, lease=0.1)
    await asyncio.sleep(0.1)
    swept = await engine.broker.sweep()
    async with node.running("work", **told, how="fail") as worker:
        await worker.said("failed")

    (again,) = await received(engine, 1)

    assert swept.lost == 1
    assert (again.suspect, again.attempt, again.charged) == (False, 3, 1)
    assert (await info(engine.broker, QUEUE)).suspects == 0


async def test_workers_of_both_share_a_queue_and_nothing_is_run_twice(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    jobs = [{"name": "n", "data": n} for n in range(150)]
    ours: list[bytes] = []
    theirs: list[int] = []
    source, done = engine.broker.source(QUEUE), asyncio.Event()

    async def consume() -> None:
        while not done.is_set():
            for one in await source.receive(limit=3, wait=0.1, lease=30.0):
                ours.append(one.message.body)
                await settled(engine, Acked(one))

    async with node.running("work", **told, how="complete") as worker:

        async def listen() -> None:
            while True:
                theirs.append((await worker.said("job"))["data"])

        tasks = [asyncio.create_task(consume()), asyncio.create_task(listen())]
        await node.run("add", **told, jobs=jobs, bulk=True)
        sending = [a_message(b"%d" % n) for n in range(150, 300)]
        await engine.broker.sink(QUEUE).send(sending)
        await eventually(lambda: len(ours) + len(theirs) >= 300, within=30)
        done.set()
        await tasks[0]
        tasks[1].cancel()
        await asyncio.wait(tasks)

    assert sorted([*map(int, ours), *theirs]) == list(range(300))
    assert min(len(ours), len(theirs)) > 0
    counts = (await seen(node, told))["counts"]
    assert (counts["waiting"], counts["active"], counts["failed"]) == (0, 0, 0)


async def test_a_queue_they_have_paused_hands_out_nothing(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await engine.broker.sink(QUEUE).send([a_message()])
    await node.run("pause", **told, verb="pause")
    source = engine.broker.source(QUEUE)
    waiting = asyncio.create_task(source.receive(limit=1, wait=30.0, lease=9.0))
    await engine.broker.sink(QUEUE).send([a_message()])
    none = await source.receive(limit=1, wait=0.2, lease=9.0)

    await node.run("pause", **told, verb="resume")

    assert none == []
    assert len(await asyncio.wait_for(waiting, 3.0)) == 1


async def test_global_concurrency_limits_are_respected(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await node.run("pause", **told, verb="concurrency", most=2)
    await engine.broker.sink(QUEUE).send([a_message() for _ in range(4)])
    source = engine.broker.source(QUEUE)

    two = await source.receive(limit=10, wait=0, lease=9.0)
    waiting = asyncio.create_task(source.receive(limit=10, wait=30.0, lease=9.0))
    await asyncio.sleep(0.1)
    still = not waiting.done()
    await settled(engine, Acked(two[0]))

    assert (len(two), still) == (2, True)
    assert len(await asyncio.wait_for(waiting, 3.0)) == 1


async def test_global_rate_limits_are_respected(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await node.run("pause", **told, verb="rate", most=3, within=1500)
    await engine.broker.sink(QUEUE).send([a_message() for _ in range(5)])
    source, loop = engine.broker.source(QUEUE), asyncio.get_running_loop()

    begun = loop.time()
    three = await source.receive(limit=10, wait=0, lease=9.0)
    none = await source.receive(limit=10, wait=0, lease=9.0)
    rest = await source.receive(limit=10, wait=10.0, lease=9.0)

    assert (len(three), len(none), len(rest)) == (3, 0, 2)
    assert 1.0 < loop.time() - begun < 5.0


@pytest.mark.parametrize(
    "case",
    [
        (None, Fate.HANDLED, "completed"),
        ("ignoreDependencyOnFailure", Fate.BURIED, "completed"),
        ("removeDependencyOnFailure", Fate.BURIED, "completed"),
        ("continueParentOnFailure", Fate.BURIED, "completed"),
        ("failParentOnFailure", Fate.BURIED, "failed"),
    ],
)
async def test_a_parent_goes_on_when_we_have_its_child(
    node: Node, told: dict[str, Any], engine: BullEngine, case: tuple[str | None, Fate, str]
) -> None:
    way, fate, end = case
    opts = {way: True} if way else {}
    child = {"name": "child", "queueName": QUEUE, "data": 1, "opts": opts}
    flow = {"name": "parent", "queueName": "parents", "data": 2, "children": [child]}
    parent = (await node.run("flow", **told, flow=flow))["id"]
    (delivery,) = await received(engine, 1)
    await settled(engine, Acked(delivery, fate))

    parents = {**told, "queue": "parents"}
    async with node.running("work", **parents, how="complete") as worker:
        ended = await worker.said(end)

    assert ended["id"] == parent


async def test_the_latest_of_those_turned_away_is_next(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    like = {"deduplication": {"id": "same", "keepLastIfActive": True}, "removeOnComplete": False}
    add = {**told, "bulk": False}
    await node.run("add", **add, jobs=[{"name": "n", "data": 1, "opts": like}])
    (first,) = await received(engine, 1)
    for number in (2, 3):
        await node.run("add", **add, jobs=[{"name": "n", "data": number, "opts": like}])
    await settled(engine, Acked(first))

    (last,) = await received(engine, 1)
    await settled(engine, Acked(last))
    await node.run("add", **add, jobs=[{"name": "n", "data": 4, "opts": like}])
    (free,) = await received(engine, 1)

    bodies = [d.message.body for d in (first, last, free)]
    assert bodies == [b"1", b"3", b"4"]


async def test_nothing_of_a_job_is_left_behind(
    node: Node, told: dict[str, Any], engine: BullEngine, url: str
) -> None:
    opts = {"removeOnComplete": True}
    await node.run("add", **told, jobs=[{"name": "n", "data": 1, "opts": opts}])
    (one,) = await received(engine, 1)
    await engine.broker.note(QUEUE, [Note(one, line="a line")])  # type: ignore[attr-defined]
    await settled(engine, Released(one, history="{}"))
    (again,) = await received(engine, 1)
    await settled(engine, Acked(again))

    server: Any = Redis.from_url(url.replace("bullmq", "redis").partition("?")[0])
    keys = {key.decode() for key in await server.keys(f"{told['prefix']}:*")}
    await server.aclose()

    base = f"{told['prefix']}:{QUEUE}:"
    assert {key.removeprefix(base) for key in keys if key.startswith(base)} <= {
        *("id", "meta", "events", "marker", "pc")
    }
