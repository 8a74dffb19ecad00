"""Jobs that an App of ours works, as the real BullMQ sees them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deadletter import App, Context, DLQPolicy, Fixed, GiveUp
from deadletter.brokers.bullmq.engine import BullEngine, connect
from deadletter.brokers.bullmq.schedulers import read_cron, zone_of
from deadletter.core.errors import ConfigError
from deadletter.core.query.ast import EVERYTHING
from deadletter.ports import Acked, Fate
from deadletter.runtime.drain_loop import Intake
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice, eventually
from deadletter.wiring.foreign import opened_foreign
from engines.bullmq_pair import QUEUE, engine, received, seen, settled, told, url
from servers.node import Node

__all__ = ["engine", "told", "url"]  # fixtures

Handle = Callable[..., Awaitable[object]]
ONCE = DLQPolicy(max_attempts=1)


@asynccontextmanager
async def working(
    url: str, place: Path, handle: Handle, policy: DLQPolicy = ONCE
) -> AsyncIterator[App]:
    """An App that works the queue, as long as the block lasts."""
    app = App(url, office=f"sqlite:///{place / 'office.db'}")
    app.handler(QUEUE, policy=policy)(handle)
    stop = asyncio.Event()
    work = asyncio.create_task(app.work(stop))
    try:
        yield app
    finally:
        stop.set()
        await work
        await app.close()


async def added(node: Node, told: dict[str, Any], data: Any = 1, **opts: Any) -> str:
    job = {"name": "n", "data": data, "opts": opts}
    (id_,) = (await node.run("add", **told, jobs=[job]))["ids"]
    return str(id_)


async def ended(node: Node, told: dict[str, Any], id_: str) -> dict[str, Any]:
    """A job of theirs, once it has ended."""
    async with node.running("events", **told) as events:
        while True:
            event = await events.said()
            if event["what"] in {"completed", "failed"} and event["jobId"] == id_:
                break
    (job,) = (await seen(node, told, id_))["jobs"]
    return dict(job)


async def test_results_progress_and_logs_of_handlers_are_visible_to_bullmq(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    async def handle(data: dict[str, int], context: Context) -> object:
        context.progress(50)
        context.log("half of it")
        context.progress({"done": data["n"]})
        context.log("all of it")
        return {"sum": data["n"] + 1}

    id_ = await added(node, told, {"n": 1})
    async with working(url, tmp_path, handle):
        job = await ended(node, told, id_)

    assert (job["state"], job["returnvalue"]) == ("completed", {"sum": 2})
    assert (job["progress"], job["logs"]) == ({"done": 1}, ["half of it", "all of it"])


async def test_a_sync_handler_in_a_thread_notes_and_returns_as_well(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    def handle(data: int, context: Context) -> str:
        context.progress(data)
        return "ä"

    id_ = await added(node, told, 7)
    async with working(url, tmp_path, handle):  # type: ignore[arg-type]
        job = await ended(node, told, id_)

    assert (job["returnvalue"], job["progress"]) == ("ä", 7)


async def test_the_parent_of_a_flow_gets_what_our_handler_returned(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    async def handle(data: int) -> int:
        return data * 2

    child = {"name": "child", "queueName": QUEUE, "data": 21}
    flow = {"name": "parent", "queueName": "parents", "data": 2, "children": [child]}
    parents = {**told, "queue": "parents"}
    async with working(url, tmp_path, handle):
        parent = (await node.run("flow", **told, flow=flow))["id"]
        async with node.running("work", **parents, how="complete") as worker:
            await worker.said("completed")

    (job,) = (await seen(node, parents, parent))["jobs"]
    assert list(job["children"].values()) == [42]


async def test_a_job_we_give_up_has_the_real_error_and_all_stacks(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    async def handle(data: int, context: Context) -> None:
        raise ValueError(f"no price at attempt {context.attempt}")

    id_ = await added(node, told)
    policy = DLQPolicy(max_attempts=2, backoff=Fixed(0.01))
    async with working(url, tmp_path, handle, policy):
        job = await ended(node, told, id_)

    assert job["state"] == "failed"
    assert job["failedReason"] == "ValueError: no price at attempt 2"
    assert len(job["stacktrace"]) == 2
    assert "<locals>.handle" in job["stacktrace"][1]
    assert job["attemptsMade"] == 2


async def test_draining_what_we_gave_up_changes_nothing_in_its_letter(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    async def handle(data: int) -> None:
        raise GiveUp("no price")

    id_ = await added(node, told)
    async with working(url, tmp_path, handle) as app:
        await app.send(QUEUE, b"\x00 not JSON")
        await ended(node, told, id_)
        await eventually(lambda: _letters(app, 2))
        before = await _letters(app)
        server = url.replace("bullmq", "redis").partition("?")[0]
        async with opened_foreign(server) as foreign:
            drain = foreign.drain(f"bullmq:{told['prefix']}:{QUEUE}")
            store = await app.letters()
            intake = Intake(
                drain=drain,
                letters=store,
                clock=SystemClock(),
                dice=SeededDice(),
                observe=lambda event: None,
            )
            taken = await intake.once(10)
            await intake.end()
            left = await drain.depth()
        after = await _letters(app)

    assert (len(taken), left, len(before)) == (2, 0, 2)
    assert after == before


async def _letters(app: App, count: int = 0) -> list[Any]:
    store = await app.letters()
    page = await store.find(EVERYTHING, limit=100)
    found = list(await store.get([head.id for head in page.heads]))
    return found if len(found) >= count else []


async def test_jobs_that_bullmq_workers_failed_often_are_run(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    async def handle(data: int, context: Context) -> int:
        return context.attempt

    id_ = await added(node, told, attempts=4, backoff=1)
    async with node.running("work", **told, how="fail") as worker:
        for _ in range(4):
            await worker.said("failed")
    await node.run("retry", **told, ids=[id_])
    async with working(url, tmp_path, handle, DLQPolicy(max_attempts=3)):
        job = await ended(node, told, id_)

    assert (job["state"], job["returnvalue"]) == ("completed", 5)


async def test_jobs_retried_by_bullmq_are_run_again(
    node: Node, told: dict[str, Any], url: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.touch()

    async def handle(data: int) -> str:
        if broken.exists():
            raise ValueError("no good")
        return "good"

    id_ = await added(node, told)
    policy = DLQPolicy(max_attempts=3, backoff=Fixed(0.01))
    async with working(url, tmp_path, handle, policy) as app:
        await ended(node, told, id_)
        broken.unlink()
        await node.run("retry", **told, ids=[id_])

        async def is_done() -> bool:
            (job,) = (await seen(node, told, id_))["jobs"]
            return bool(job["state"] == "completed")

        await eventually(is_done, within=20)
        (letter,) = await _letters(app)

    assert letter.head.attempts == 3
    assert letter.head.state == "closed"


async def test_a_worker_of_ours_is_among_their_workers(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    await added(node, told)
    before = (await seen(node, told))["workers"]
    await received(engine, 1)  # it never had to wait

    (worker,) = (await seen(node, told))["workers"]

    assert before == []
    assert "deadletter@" in worker["rawname"]


@pytest.mark.parametrize(
    "repeat", [{"every": 200}, {"pattern": "* * * * * *", "tz": "Asia/Kathmandu"}]
)
async def test_a_job_scheduler_goes_on_with_our_worker(
    node: Node, told: dict[str, Any], engine: BullEngine, repeat: dict[str, Any]
) -> None:
    asked = {**told, "id": "tick", "name": "n", "data": {"a": 1}, "opts": {}}
    await node.run("schedule", **asked, repeat=repeat)

    ticks = []
    for _ in range(3):
        (tick,) = await received(engine, 1)
        await settled(engine, Acked(tick))
        ticks.append(tick)
    (scheduler,) = (await seen(node, told))["schedulers"]
    async with node.running("work", **told, how="complete") as worker:
        theirs = await worker.said("completed")

    ids = [str(tick.position) for tick in ticks]
    assert len({*ids, theirs["id"]}) == 4
    assert [tick.message.body for tick in ticks] == [b'{"a":1}'] * 3
    assert scheduler["iterationCount"] == 4
    assert ids == sorted(ids)


async def test_cron_patterns_are_read_as_their_parser_reads_them(node: Node) -> None:
    patterns = [
        *("* * * * *", "*/15 * * * * *", "0 9-17/2 * * mon-fri", "30 2 * * *"),
        *("0 0 L * *", "0 12 * * 5L", "15 10 * * 5#2", "0 0 13 * 5", "@weekly"),
        *("0 0 29 2 *", "5,35 0,12 1,15 jan,jul *", "0 3 * * sun", "10/20 * * * *"),
        *("0 0 1 */3 ?", "59 59 23 31 12 *", "0 */4 * * *", "0 0 * * 7"),
    ]
    starts = ["2026-03-28T20:11:12Z", "2026-10-24T22:59:59Z", "2027-12-31T23:00:00Z"]
    zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]
    cases = [(p, z, at) for p in patterns for z in zones for at in starts]

    theirs = (await node.run("cron", cases=cases))["next"]

    ours = []
    for pattern, zone, at in cases:
        cron, moment, found = read_cron(pattern), datetime.fromisoformat(at), []
        for _ in range(3):
            moment = cron.next_after(moment, zone_of(zone)) or moment
            found.append(int(moment.timestamp() * 1000))
        ours.append(found)
    differ = [
        (case, [str(datetime.fromtimestamp(one / 1000, UTC)) for one in (*a, *b)])
        for case, a, b in zip(cases, ours, theirs, strict=True)
        if a != b
    ]
    assert differ == []


@pytest.mark.parametrize("pattern", ["", "* * *", "61 * * * *", "H * * * *", "x", "*/0 * * * *"])
def test_invalid_cron_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(ValueError, match="cron pattern"):
        read_cron(pattern)


async def test_a_job_scheduler_ends_with_its_limit(
    node: Node, told: dict[str, Any], engine: BullEngine
) -> None:
    asked = {**told, "id": "tick", "name": "n", "data": {}, "opts": {}}
    await node.run("schedule", **asked, repeat={"every": 50, "limit": 2})

    for _ in range(2):
        (tick,) = await received(engine, 1)
        await settled(engine, Acked(tick))

    assert await engine.broker.source(QUEUE).receive(limit=1, wait=0.3, lease=9) == []


async def test_the_url_sets_the_default_retention_of_jobs(
    node: Node, told: dict[str, Any], url: str
) -> None:
    few = await connect(f"{url}&remove_on_complete=true&remove_on_fail=1")
    jobs = [{"name": "n", "data": n} for n in range(3)]
    jobs += [{"name": "n", "data": 3, "opts": {"removeOnComplete": False}}]
    ids = (await node.run("add", **told, jobs=jobs, bulk=True))["ids"]
    found = await received(few, 4)
    fates = [Fate.HANDLED, Fate.BURIED, Fate.BURIED, Fate.HANDLED]
    for delivery, fate in zip(found, fates, strict=True):
        await settled(few, Acked(delivery, fate))
    await few.close()

    said = await seen(node, told, *ids)

    states = [job and job["state"] for job in said["jobs"]]
    assert states == [None, None, "failed", "completed"]
    with pytest.raises(ConfigError, match="remove_on_fail"):
        await connect(f"{url}&remove_on_fail=some")
