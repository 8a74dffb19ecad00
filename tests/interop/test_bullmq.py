"""BullMQ, with its real workers: there and back, again, and killed on the way."""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from deadletter.brokers.redis.frameworks.bullmq import BullMQ
from deadletter.core.campaign import Campaign, Care, Outcome, Verdict
from deadletter.core.letter import By, DeadLetter, State
from deadletter.core.message import Lineage
from deadletter.core.query.ast import EVERYTHING
from deadletter.office.replay import Replay
from deadletter.ports import CopyState, LetterStore, OutcomeProbe, SentCopy
from deadletter.runtime.drain_loop import Intake
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import open_engine
from deadletter.wiring.foreign import Ways, opened_foreign
from interop.rig import NodeShop, System, halt_and_go_on
from servers import Server
from servers.node import HOME, Node, connection

KILLS = 20
# Queues more than kills are needed: a process that waits less has fewer steps than the
# first one, and ends before the last points.
SPARE = 6
ROOT = Path(__file__).parents[2]
_WRITTEN = "redis://localhost:6379"  # on the page
BY = By("tester")
ODD = {"to": "ä\u2028\U0001f600", "price": 1.5, "big": 2**53, "none": None, "list": [[], {}]}


class Shop:
    """Queues of BullMQ on a server, and an office beside it."""

    def __init__(self, server: Server, node: Node, folder: Path) -> None:
        self.server = server
        self.url = server.url
        self.node = node
        self.office = f"sqlite:///{folder / 'office.db'}"
        self.where = connection(server.url)
        self.client: Any = Redis.from_url(server.url)

    async def add(self, *jobs: dict[str, Any], queue: str = "mail") -> list[str]:
        """Add jobs as a producer of theirs does."""
        said = await self.node.run("add", **self.where, queue=queue, jobs=jobs)
        return list(said["ids"])

    async def work(
        self, how: str, count: int, queues: Sequence[str] = ("mail",), **more: Any
    ) -> list[dict[str, Any]]:
        """Have workers of theirs end as many jobs; what each of them had."""
        told = {**self.where, "queues": queues, "how": how, **more}
        ends = {"complete": "completed", "fail": "failed"}[how]
        async with self.node.running("many", **told) as worker:
            return [await worker.said(ends) for _ in range(count)]

    async def look(self, *ids: str, queue: str = "mail") -> list[Any]:
        """Jobs as they see them."""
        said = await self.node.run("look", **self.where, queue=queue, ids=ids)
        return list(said["jobs"])

    @asynccontextmanager
    async def letters(self) -> AsyncIterator[LetterStore]:
        engine = await open_engine(self.office)
        try:
            assert engine.letters is not None
            yield engine.letters
        finally:
            await engine.close()

    async def all_letters(self) -> list[DeadLetter]:
        async with self.letters() as store:
            page = await store.find(EVERYTHING, limit=1000)
            return list(await store.get([head.id for head in page.heads]))

    async def drain(self, *queues: str) -> int:
        """Drain queues into the office; how many jobs were taken."""
        taken = 0
        async with self.letters() as store, opened_foreign(self.url) as foreign:
            for queue in queues or ("mail",):
                intake = Intake(
                    drain=foreign.drain(f"bullmq:{queue}"),
                    letters=store,
                    clock=SystemClock(),
                    dice=SystemDice(),
                    observe=lambda event: None,
                )
                while some := await intake.once(2):
                    taken += len(some)
                await intake.end()
        return taken

    async def send_back(
        self, query: str = "is:pending", include: Sequence[Verdict] = ()
    ) -> Campaign:
        """Replay letters to where they came from; a campaign that was begun goes on."""
        async with self.replays() as replay:
            page = await replay.latest(limit=100)
            begun = [one for one in page if str(one.query) == query]
            care = Care(key_order=False, include=tuple(include))
            campaign = (
                begun[-1] if begun else await replay.start(query, BY, care=care, through="shop")
            )
            await replay.run(campaign.id)
            return await replay.status(campaign.id)

    @asynccontextmanager
    async def replays(self) -> AsyncIterator[Replay]:
        clock = SystemClock()
        ways = Ways({"shop": self.url}, clock=clock)
        async with self.letters() as store, ways.open("shop") as way:
            yield Replay(store, way, clock, SystemDice(), ways=ways)

    async def state_of(self, letter: DeadLetter, queue: str = "mail") -> CopyState:
        """What the server says of the latest copy of a letter."""
        head = letter.head
        lineage = Lineage(letter_id=head.id, generation=head.replays, campaign="")
        copy = SentCopy(
            letter_id=head.id,
            generation=head.replays,
            mailbox=queue,
            message=msgspec.structs.replace(letter.message, lineage=lineage),
            sent_at=head.dead_at,
        )
        async with opened_foreign(self.url) as foreign:
            assert isinstance(foreign, OutcomeProbe)
            [state] = await foreign.look([copy])
        return state

    async def data(self, queue: str, id_: str) -> bytes:
        """The bytes of a job."""
        return bytes(await self.client.hget(f"bull:{queue}:{id_}", "data"))


@pytest.fixture
async def shop(redis_server: Server, node: Node, tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(redis_server, node, tmp_path)
    await shop.client.flushdb()
    yield shop
    await shop.client.aclose()


async def test_dies_twice_and_is_done_once(shop: Shop) -> None:
    await shop.add({"name": "welcome", "data": ODD, "opts": {"jobId": "w-1"}})
    await shop.work("fail", 1, log="looked up the price")
    before = await shop.data("mail", "w-1")

    assert await shop.drain() == 1
    [letter] = await shop.all_letters()
    gone = not await shop.client.exists("bull:mail:w-1", "bull:mail:w-1:logs")
    await shop.send_back()
    back = await shop.data("mail", "w-1")
    waiting = await shop.state_of((await shop.all_letters())[0])
    await shop.work("fail", 1)
    dead = await shop.state_of((await shop.all_letters())[0])
    assert await shop.drain() == 1
    [again] = await shop.all_letters()
    await shop.send_back(f"id:{letter.id}")
    [done] = await shop.work("complete", 1)
    [job] = await shop.look("w-1")
    handled = await shop.state_of((await shop.all_letters())[0])

    assert gone
    assert letter.message.body == before == back
    head = letter.head
    assert (head.error_type, head.error_text) == ("TypeError", "no price for w-1")
    assert (head.source, head.consumer, head.attempts) == ("mail", "welcome", 1)
    assert (again.id, again.head.state) == (letter.id, State.PENDING)
    assert (again.head.attempts, again.head.replays) == (2, 1)
    assert done["data"] == job["data"] == ODD
    assert (job["attemptsMade"], job["logs"]) == (1, ["looked up the price"])
    states = (waiting, dead, handled)
    assert states == (CopyState.THERE, CopyState.DEAD, CopyState.HANDLED)


async def test_the_outcome_of_a_job_that_was_removed_is_read_from_events(shop: Shop) -> None:
    for end, way in (("complete", "removeOnComplete"), ("fail", "removeOnFail")):
        [id_] = await shop.add({"name": "n", "data": 1})
        await shop.work("fail", 1)
        await shop.client.hset(f"bull:mail:{id_}", "opts", json.dumps({way: True}))
        await shop.drain()
        await shop.send_back(f"message:{id_}")
        await shop.work(end, 1)

    found = {one.head.message_id: one for one in await shop.all_letters()}
    states = [await shop.state_of(found[id_]) for id_ in ("1", "2")]

    assert await shop.look("1", "2") == [None, None]
    assert states == [CopyState.HANDLED, CopyState.DEAD]


async def test_a_live_job_of_the_same_id_is_never_overwritten(shop: Shop) -> None:
    job = {"name": "n", "data": "old", "opts": {"jobId": "w-1"}}
    await shop.add(job)
    await shop.work("fail", 1)
    await shop.drain()
    await shop.add({**job, "data": "new"})

    refused = await shop.send_back("message:w-1")
    [open_again] = await shop.all_letters()
    [live] = await shop.look("w-1")
    await shop.send_back("message:w-1 is:pending", [Verdict.ID_IN_USE])
    done = await shop.work("complete", 2)
    [copy] = await shop.look("w-1-replay-2")

    assert refused.counts[Outcome.REFUSED] == 1
    assert (open_again.head.state, live["data"]) == (State.PENDING, "new")
    assert {(one["id"], one["data"]) for one in done} == {("w-1", "new"), ("w-1-replay-2", "old")}
    assert copy["opts"]["jobId"] == "w-1"
    [letter] = await shop.all_letters()
    assert await shop.state_of(letter) is CopyState.HANDLED


async def test_ids_in_use_are_a_verdict_before_anything_is_sent(shop: Shop) -> None:
    jobs = [{"name": "n", "data": id_, "opts": {"jobId": id_}} for id_ in ("w-1", "w-2")]
    await shop.add(*jobs)
    await shop.work("fail", 2)
    await shop.drain()
    await shop.add({**jobs[0], "data": "new"})

    async with shop.replays() as replay:
        plan = await replay.plan("*", through="shop")
        care = Care(include=(Verdict.ID_IN_USE,))
        asked = await replay.plan("*", through="shop", care=care)
    sent = await shop.send_back("*")

    assert plan.verdicts == {Verdict.ID_IN_USE: 1, Verdict.READY: 1}
    assert (plan.left_out, plan.sendable) == ((Verdict.ID_IN_USE,), 1)
    assert (asked.left_out, asked.sendable) == ((), 2)
    assert sent.counts == {Outcome.SENT: 1}
    [live, back] = await shop.look("w-1", "w-2")
    assert (live["data"], back["data"]) == ("new", "w-2")


async def test_a_job_that_a_killed_drain_left_behind_is_not_in_use(shop: Shop) -> None:
    await shop.add({"name": "n", "data": 1, "opts": {"jobId": "w-1"}})
    await shop.work("fail", 1)
    copy = await shop.client.dump("bull:mail:w-1")
    await shop.drain()
    await shop.client.restore("bull:mail:w-1", 0, copy)
    await shop.client.zadd("bull:mail:failed", {"w-1": 1})

    async with shop.replays() as replay:
        plan = await replay.plan("*", through="shop")

    assert plan.verdicts == {Verdict.READY: 1}


async def test_a_copy_under_a_new_id_that_dies_returns_to_its_letter(shop: Shop) -> None:
    job = {"name": "n", "data": "old", "opts": {"jobId": "w-1"}}
    await shop.add(job)
    await shop.work("fail", 1)
    await shop.drain()
    await shop.add({**job, "data": "new", "opts": {"jobId": "w-1", "delay": 60_000}})
    await shop.send_back("message:w-1", [Verdict.ID_IN_USE])
    await shop.work("fail", 1)

    assert await shop.drain() == 1

    [letter] = await shop.all_letters()
    assert (letter.head.message_id, letter.head.attempts) == ("w-1", 2)


@pytest.mark.parametrize("parent_first", [True, False])
async def test_children_of_a_flow_go_before_their_parent(shop: Shop, parent_first: bool) -> None:
    fails = {"failParentOnFailure": True}
    children = [
        {"name": "child", "queueName": "kids", "data": 1, "opts": fails},
        {"name": "child", "queueName": "kids", "data": 2, "opts": fails},
    ]
    flow = {"name": "parent", "queueName": "mail", "data": 3, "children": children}
    parent = (await shop.node.run("flow", **shop.where, flow=flow))["id"]
    await shop.work("fail", 3, ("kids", "mail"))
    assert await shop.drain("mail", "kids") == 3

    queries = ["source:mail", "source:kids"]
    for query in queries if parent_first else reversed(queries):
        await shop.send_back(query)
    done = await shop.work("complete", 3, ("kids", "mail"))

    assert [one["queue"] for one in done][-1] == "mail"
    [job] = await shop.look(parent)
    assert job["state"] == "completed"
    assert sorted(job["children"].values()) == [1, 2]


async def test_jobs_retried_during_a_drain_stay_in_their_queue(shop: Shop) -> None:
    [id_] = await shop.add({"name": "n", "data": 1})
    await shop.work("fail", 1)
    framework = BullMQ()
    [found] = await framework.read(shop.client, "mail", 10, ())
    await shop.node.run("retry", **shop.where, queue="mail", ids=[id_])

    await framework.forget(shop.client, "mail", [found.receipt])

    [done] = await shop.work("complete", 1)
    assert (done["id"], done["data"]) == (id_, 1)


async def test_a_canary_halts_and_is_confirmed(shop: Shop, tmp_path: Path) -> None:
    works = NodeShop(shop.node, shop.server, tmp_path)
    system = System(framework="bullmq", module="", place="bullmq:shop", worker=())

    await halt_and_go_on(works, system, "confirmed")


async def test_the_recipe_works_as_it_is_written(shop: Shop, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "backends" / "bullmq.md").read_text()
    recipe = page.partition("## Recipe")[2].partition("\n## ")[0]
    blocks = re.findall(r"```(js|sh)\n(.*?)```", recipe, re.DOTALL)
    [script] = [text for kind, text in blocks if kind == "js"]
    commands = "".join(text for kind, text in blocks if kind == "sh").splitlines()
    (tmp_path / "shop.mjs").write_text(script.replace(_WRITTEN, shop.url))
    (tmp_path / "node_modules").symlink_to(HOME / "node_modules")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "dlq").write_text(f'#!/bin/sh\nexec {sys.executable} -m deadletter.cli "$@"')
    (bin_ / "dlq").chmod(0o755)
    environ = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}

    said: dict[str, str] = {}
    for line in commands:
        command, _, expected = map(str.strip, line.partition("#"))
        if command.startswith(("npm ", "pip ")):
            continue
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            environ[name] = value
            continue
        process = await asyncio.create_subprocess_shell(
            command.replace(_WRITTEN, shop.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
            env=environ,
        )
        out, _ = await process.communicate()
        said[command] = out.decode()
        assert process.returncode == 0, f"{command}: {out.decode()}"
        assert expected.rpartition(": ")[2] in out.decode(), command

    assert len(said) == 6


async def test_killed_at_twenty_points_of_both_ways(shop: Shop) -> None:
    queues = [f"q{number}" for number in range(KILLS + SPARE)]
    jobs = [{"name": "n", "data": {**ODD, "n": n}, "opts": {"jobId": f"j-{n}"}} for n in range(4)]
    total = len(queues) * len(jobs)
    await shop.work("fail", total, queues, jobs=jobs)
    bodies = {
        (queue, job["opts"]["jobId"]): await shop.data(queue, job["opts"]["jobId"])
        for queue in queues
        for job in jobs
    }

    died = killed_everywhere(shop.drain, queues)
    await shop.drain(*queues)
    kept = await shop.all_letters()
    kept_bodies = {(k.head.source, k.head.message_id): k.message.body for k in kept}
    assert died >= KILLS
    assert (len(kept), kept_bodies) == (total, bodies)
    assert {letter.head.attempts for letter in kept} == {1}
    assert not [key async for key in shop.client.scan_iter("bull:*:failed")]

    queries = [f"source:{queue}" for queue in queues]
    told = {**shop.where, "queues": queues, "how": "complete"}
    done: Counter[tuple[str, str]] = Counter()
    async with shop.node.running("many", **told) as worker:
        await worker.said("ready")
        died = await asyncio.to_thread(killed_everywhere, shop.send_back, queries)
        for query in queries:
            await shop.send_back(query)
        for _ in range(total):
            one = await worker.said("completed")
            done[one["queue"], one["id"]] += 1
            assert {**one["data"], "n": 0} == {**ODD, "n": 0}
    letters = await shop.all_letters()
    states = {await shop.state_of(one, one.head.source) for one in letters}

    assert died >= KILLS
    assert done == Counter(bodies.keys())
    assert {key: await shop.data(*key) for key in bodies} == bodies
    assert (len(letters), states) == (total, {CopyState.HANDLED})
    counts = [await shop.client.zcard(f"bull:{queue}:completed") for queue in queues]
    assert counts == [len(jobs)] * len(queues)


def killed_everywhere(work: Callable[[str], Awaitable[object]], given: Sequence[str]) -> int:
    """
    Kill processes with `kill -9` at evenly spaced steps; how many died.

    A step is a turn of the event loop: something was sent, or an answer came. The first
    is not killed: it says how many steps there are.
    """
    first, *others = given
    steps = _forked(work, first, 0)
    return sum(
        _forked(work, one, max(1, steps * number // (len(others) + 1))) < 0
        for number, one in enumerate(others, 1)
    )


def _forked(work: Callable[[str], Awaitable[object]], given: str, die_at: int) -> int:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _live(work, given, die_at, write)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as said:
        steps = int(said.read() or -1)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, -signal.SIGKILL}, "neither done nor killed"
    return steps if code == 0 else -1


def _live(work: Callable[[str], Awaitable[object]], given: str, die_at: int, write: int) -> None:
    steps = 0
    try:
        loop = asyncio.SelectorEventLoop()
        turn = loop._run_once  # type: ignore[attr-defined]

        def count() -> None:
            nonlocal steps
            steps += 1
            if steps == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            turn()

        loop._run_once = count  # type: ignore[attr-defined]
        asyncio.events._set_running_loop(None)
        asyncio.set_event_loop(loop)
        loop.run_until_complete(work(given))
        os.write(write, str(steps).encode())
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 -- nothing may escape a fork
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
