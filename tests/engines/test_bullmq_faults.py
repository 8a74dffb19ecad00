"""A lost answer is neither a lost nor a doubled job; odd jobs stop nobody."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deadletter.brokers import bullmq
from deadletter.brokers.bullmq.engine import BullEngine, connect
from deadletter.core.errors import ConfigError, Refused, Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Fate, QueueOptions, Released
from deadletter.testing.fakes import FakeClock, SeededDice, eventually
from deadletter.testing.queue_bench import LEASE, a_message, drained, info
from engines.bullmq_rig import fresh
from engines.redis_rig import Deaf, tuned
from servers import Server
from servers.common import free_port

ALL = 10  # more answers than anybody waits for


@pytest.fixture
async def engine(redis_server: Server) -> AsyncIterator[BullEngine]:
    engine = await connect(fresh(redis_server.url))
    yield engine
    await engine.close()


@pytest.fixture
async def deaf(engine: BullEngine) -> Deaf:
    await engine.broker.source("orders").receive(limit=1, wait=0, lease=LEASE)
    return Deaf(engine)


async def received(engine: BullEngine, count: int) -> list[Delivery]:
    deliveries = await drained(engine.broker.source("orders"))
    assert len(deliveries) == count
    return deliveries


async def put(engine: BullEngine, **fields: Any) -> None:
    """A job that somebody wrote by hand, waiting."""
    _, base = engine.broker._mailbox("orders").keys
    given = [part for pair in fields.items() for part in pair]
    await engine._runner.command("HSET", f"{base}odd", *given)
    await engine._runner.command("LPUSH", f"{base}wait", "odd")


@pytest.mark.parametrize("misses", [2, ALL])
async def test_a_send_whose_answer_is_lost_is_not_doubled(
    engine: BullEngine, deaf: Deaf, misses: int
) -> None:
    messages = [a_message(), a_message()]
    sink = engine.broker.sink("orders")
    deaf.misses = misses
    if misses == ALL:
        with pytest.raises(Unavailable):
            await sink.send(messages)
        deaf.misses = 0

    await sink.send(messages)

    assert [d.message for d in await received(engine, 2)] == messages


async def test_a_receive_whose_answer_is_lost_costs_no_attempt(
    engine: BullEngine, deaf: Deaf
) -> None:
    sending = [a_message() for _ in range(12)]
    await engine.broker.sink("orders").send(sending)
    deaf.misses = 1

    found = await received(engine, 12)

    assert {(d.attempt, d.spared) for d in found} == {(1, 0)}
    assert [d.message for d in found] == sending, "in the order they were sent"


async def test_a_receive_of_a_suspect_whose_answer_is_lost_is_made_up_for(
    engine: BullEngine, deaf: Deaf
) -> None:
    await engine.broker.sink("orders").send([a_message()])
    source = engine.broker.source("orders")
    await source.receive(limit=1, wait=0, lease=0.05)

    async def is_lost() -> bool:
        return (await engine.broker.sweep()).suspects == {"orders"}

    await eventually(is_lost)
    deaf.misses = 1

    (suspect,) = await source.receive(limit=1, wait=1.0, lease=LEASE, alone=True)

    assert (suspect.suspect, suspect.attempt, suspect.charged) == (True, 2, 1)


@pytest.mark.parametrize("misses", [1, ALL])
async def test_a_settlement_whose_answer_is_lost_is_made_once(
    engine: BullEngine, deaf: Deaf, misses: int
) -> None:
    keeping = (("bullmq-opts", b'{"removeOnComplete": false}'),)
    sending = [a_message(), a_message(headers=keeping), a_message(), a_message()]
    await engine.broker.sink("orders").send(sending)
    acked, kept, released, spared = await received(engine, 4)
    source = engine.broker.source("orders")
    settlements = [
        Acked(acked, Fate.BURIED),
        Acked(kept),
        Released(released, history="told"),
        Released(spared, charged=False),
    ]

    deaf.misses = misses
    if misses == ALL:
        with pytest.raises(Unavailable):
            await source.settle(settlements)
        deaf.misses = 0
    answers = await source.settle(settlements)

    assert answers == [True] * 4
    back = await received(engine, 2)
    assert [(d.attempt, d.spared, d.history) for d in back] == [(2, 0, "told"), (2, 1, "")]
    assert await source.settle(settlements) == [False] * 4


async def test_an_extension_whose_answer_is_lost_holds(engine: BullEngine, deaf: Deaf) -> None:
    await engine.broker.sink("orders").send([a_message()])
    (delivery,) = await received(engine, 1)
    deaf.misses = 1

    assert await engine.broker.source("orders").extend([delivery], lease=LEASE)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "n"},
        {"name": b"\xff\xfe", "data": b"\xff", "opts": b"\xff"},
        {"name": "n", "data": "1", "opts": "[" * 100_000},
        {"name": "n", "data": "1", "opts": '{"tm": 7, "removeOnFail": {"count": 1.5}}'},
        {"name": "n", "data": "1", "opts": '{"removeOnFail": {"age": "x"}}'},
        {"name": "n", "data": "1", "opts": '{"removeOnFail": 1e300, "attempts": []}'},
        {"name": "n", "data": "1", "timestamp": "1e999", "processedOn": "yesterday"},
        {"name": "n", "data": "1", "priority": "high", "atm": "x", "stc": "y"},
        {"name": "n", "data": "1", "dlq": "{", "dlq:story": b"\xff"},
        {"name": "n", "data": "1", "parentKey": "gone", "parent": "{"},
    ],
)
async def test_an_odd_job_is_worked_like_any_other(
    engine: BullEngine, fields: dict[str, Any]
) -> None:
    await engine.broker.sink("orders").send([])
    await put(engine, **fields)
    source = engine.broker.source("orders")

    found = [
        *await drained(source),
        *await source.receive(limit=1, wait=0, lease=LEASE, alone=True),
    ]

    assert [d.message.id for d in found] == ["odd"]
    assert await source.settle([Released(found[0])]) == [True]
    (again,) = await received(engine, 1)
    assert await source.settle([Acked(again, Fate.BURIED)]) == [True]
    counts = await info(engine.broker)
    assert (counts.ready, counts.claimed, counts.suspects) == (0, 0, 0)


async def test_why_bullmq_would_fail_a_job_is_told_or_ours_to_decide(engine: BullEngine) -> None:
    await engine.broker.sink("orders").send([])
    _, base = engine.broker._mailbox("orders").keys
    await put(engine, name="n", data="1", defa="child x:y:1 failed")
    (parent,) = await received(engine, 1)
    await engine.broker.source("orders").settle([Acked(parent)])
    stalled = "job stalled more than allowable limit"
    await put(engine, name="n", data="1", defa=stalled)

    (suspect,) = await received(engine, 1)

    assert parent.message.header("bullmq-failure") == "child x:y:1 failed"
    assert suspect.message.header("bullmq-failure") is None
    assert await engine._runner.command("HGET", f"{base}odd", "defa") is None


async def test_jobs_of_a_queue_that_bullmq_5_has_paused_wait_where_it_looks(
    engine: BullEngine,
) -> None:
    _, base = engine.broker._mailbox("orders").keys
    await engine._runner.command(
        *("HSET", f"{base}meta", "paused", "1", "version", "bullmq:5.81.5")
    )
    await engine.broker.sink("orders").send([a_message()])

    await received(engine, 0)
    assert await engine._runner.command("LLEN", f"{base}paused") == 1
    assert (await info(engine.broker)).ready == 1
    await engine._runner.command("HDEL", f"{base}meta", "paused")
    await engine._runner.command("RENAME", f"{base}paused", f"{base}wait")
    await received(engine, 1)


async def test_a_job_removed_from_outside_blocks_nobody(engine: BullEngine) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(3)])
    _, base = engine.broker._mailbox("orders").keys
    await engine._runner.command("DEL", f"{base}1")

    await received(engine, 2)


async def test_many_suspects_do_not_hide_the_others(engine: BullEngine) -> None:
    await engine.broker.sink("orders").send([a_message() for _ in range(1200)])
    source = engine.broker.source("orders")
    await source.receive(limit=1200, wait=0, lease=0.01)
    lost = 0
    while lost < 1200:
        lost += (await engine.broker.sweep()).lost
    await engine.broker.sink("orders").send([a_message(id="innocent")])

    (found,) = await source.receive(limit=5, wait=5.0, lease=LEASE)

    assert found.message.id == "innocent"
    assert (await info(engine.broker)).claimed == 1


async def test_a_message_may_say_what_its_job_has(engine: BullEngine) -> None:
    def wanting(opts: bytes) -> Any:
        return a_message(opts, headers=(("bullmq-opts", opts),))

    low, high = wanting(b'{"priority": 20}'), wanting(b'{"priority": 10}')
    plain = wanting(b'{"delay": 60000, "jobId": "7"}')
    await engine.broker.sink("orders").send([low, high, plain])

    found = await received(engine, 3)

    assert [d.message for d in found] == [plain, high, low]
    for wrong in (b'{"priority": -1}', b'{"priority": "x"}', b"[]", b"{"):
        with pytest.raises(Refused, match="bullmq-opts"):
            await engine.broker.sink("orders").send([wanting(wrong)])


async def test_traces_travel_where_bullmq_puts_them(engine: BullEngine) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await engine.broker.sink("orders").send([a_message(traceparent=parent, tracestate="a=b")])
    _, base = engine.broker._mailbox("orders").keys
    opts = await engine._runner.command("HGET", f"{base}1", "opts")
    await put(engine, name="n", data="1", opts=opts)

    ours, theirs = await received(engine, 2)

    for message in (ours.message, theirs.message):
        assert (message.traceparent, message.tracestate) == (parent, "a=b")


async def test_a_colon_in_the_name_of_a_queue_is_refused(engine: BullEngine) -> None:
    for use in (engine.broker.source, engine.broker.sink):
        with pytest.raises(ConfigError, match="must not contain a colon"):
            use("a:b")
    with pytest.raises(ConfigError, match="must not contain a colon"):
        await engine.broker.create(QueueOptions(name="a:b"))
    assert await engine.broker.queues() == []


async def test_wrong_urls_are_told(redis_server: Server) -> None:
    for wrong in ("?prefix=a+b", "?colour=red"):
        with pytest.raises(ConfigError):
            await bullmq.open_engine(
                redis_server.url.replace("redis", "bullmq", 1) + wrong,
                clock=FakeClock(),
                dice=SeededDice(),
            )


async def test_a_cluster_is_refused() -> None:
    with (
        tuned("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server,
        pytest.raises(ConfigError, match="node of a cluster"),
    ):
        await connect(server.url.replace("redis", "bullmq", 1))


async def test_waiting_receivers_cost_next_to_nothing(engine: BullEngine) -> None:
    async def calls() -> int:
        said = (await engine._runner.command("INFO", "commandstats")).decode()
        return sum(
            int(line.split("calls=")[1].split(",")[0])
            for line in said.splitlines()
            if line.startswith(("cmdstat_evalsha", "cmdstat_bzpopmin"))
        )

    source = engine.broker.source("orders")
    tasks = [asyncio.create_task(source.receive(limit=1, wait=30.0, lease=LEASE)) for _ in range(5)]
    await asyncio.sleep(0.2)
    before = await calls()
    await asyncio.sleep(1.0)

    assert await calls() == before
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
