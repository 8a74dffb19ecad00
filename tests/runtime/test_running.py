"""Handlers share tasks as long as they do not wait, and never notice."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime

import pytest

from deadletter.core.message import Delivery, Message
from deadletter.runtime.attempt import Running
from deadletter.runtime.deliveries import ClaimedDelivery, InterruptReason
from deadletter.testing.fakes import eventually
from rig import Rig

NOW = datetime(2026, 1, 1, tzinfo=UTC)
mark: ContextVar[str] = ContextVar("mark", default="none")


def held(name: str) -> ClaimedDelivery:
    message = Message(id=name, body=b"", sent_at=NOW)
    one = ClaimedDelivery(Delivery(message=message, mailbox="orders", attempt=1), 0.0)
    one.begin(0.0)
    return one


async def run(
    names: str, attempt: Callable[[str], Awaitable[None]]
) -> tuple[Running, list[ClaimedDelivery]]:
    async def attempted(one: ClaimedDelivery) -> None:
        await attempt(one.delivery.message.id)

    running, batch = Running(attempted), [held(name) for name in names]
    running.start(batch)
    await eventually(lambda: batch[0].task is not None)
    return running, batch


async def test_handlers_that_do_not_wait_share_a_task_in_order() -> None:
    seen: list[str] = []

    async def attempt(name: str) -> None:
        seen.append(name)

    _, batch = await run("abc", attempt)

    assert seen == ["a", "b", "c"]
    assert len({id(one.task) for one in batch}) == 1


async def test_pending_fetches_go_out_before_handlers_run() -> None:
    order: list[str] = []

    async def fetch() -> None:
        for _ in range(4):  # an engine gathers what comes up in some turns
            await asyncio.sleep(0)
        order.append("fetch")

    async def attempt(name: str) -> None:
        order.append(name)

    fetching = asyncio.create_task(fetch())
    await run("ab", attempt)
    await fetching

    assert order == ["fetch", "a", "b"]


async def test_after_the_end_none_is_started() -> None:
    seen: list[str] = []

    async def attempt(one: ClaimedDelivery) -> None:
        seen.append(one.delivery.message.id)

    running, batch = Running(attempt), [held("a"), held("b")]
    running.start(batch)  # on its way when the end comes
    running.forget()
    running.start([held("c")])
    for _ in range(20):
        await asyncio.sleep(0)

    assert seen == []
    assert batch[0].task is None


async def test_a_waiting_handler_does_not_block_others() -> None:
    gate, seen = asyncio.Event(), []

    async def attempt(name: str) -> None:
        if name in "bd":
            await gate.wait()
        seen.append(name)

    _, batch = await run("abcde", attempt)
    await eventually(lambda: seen == ["a", "c", "e"])
    gate.set()
    await eventually(lambda: sorted(seen) == ["a", "b", "c", "d", "e"])

    assert batch[1].task is not batch[2].task
    assert batch[1].task is not batch[3].task


async def test_a_later_batch_runs_while_an_earlier_one_waits() -> None:
    gate, seen = asyncio.Event(), []

    async def attempt(name: str) -> None:
        if name == "a":
            await gate.wait()
        seen.append(name)

    running, _ = await run("a", attempt)
    running.start([held("b")])
    await eventually(lambda: seen == ["b"])
    gate.set()
    await eventually(lambda: seen == ["b", "a"])


async def test_each_has_a_context_of_its_own_from_first_to_last() -> None:
    before: list[str] = []
    after: dict[str, str] = {}

    async def attempt(name: str) -> None:
        before.append(mark.get())
        mark.set(name)
        if name != "b":
            await asyncio.sleep(0)
        after[name] = mark.get()

    await run("abc", attempt)
    await eventually(lambda: len(after) == 3)

    assert before == ["none", "none", "none"]
    assert after == {"a": "a", "b": "b", "c": "c"}
    assert mark.get() == "none"


async def test_timeouts_and_task_groups_work_in_each() -> None:
    ended: list[str] = []

    async def attempt(name: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        ended.append(name)

    await run("abc", attempt)

    await eventually(lambda: sorted(ended) == ["a", "b", "c"])


async def test_only_the_one_that_is_interrupted_is_cancelled() -> None:
    begun: list[str] = []
    ended: dict[str, str] = {}
    gate = asyncio.Event()

    async def attempt(name: str) -> None:
        begun.append(name)
        try:
            await gate.wait()
            ended[name] = "done"
        except asyncio.CancelledError:
            ended[name] = "cancelled"

    _, batch = await run("abc", attempt)
    await eventually(lambda: begun == ["a", "b", "c"])
    batch[1].interrupt(InterruptReason.TIMED_OUT)
    await eventually(lambda: ended == {"b": "cancelled"})
    gate.set()

    await eventually(lambda: ended == {"a": "done", "b": "cancelled", "c": "done"})


async def test_errors_of_awaited_calls_reach_the_handler() -> None:
    caught: list[str] = []

    async def attempt(name: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, ValueError(name))
        try:
            await future
        except ValueError as error:
            caught.append(str(error))

    await run("ab", attempt)

    await eventually(lambda: sorted(caught) == ["a", "b"])


async def test_a_worker_runs_a_whole_batch_in_few_tasks() -> None:
    rig, tasks = Rig(), set()

    @rig.app.handler("orders")
    async def handle(body: bytes) -> None:
        tasks.add(asyncio.current_task())

    async with rig.working():
        await rig.app.send_many("orders", [b"x"] * 100)
        await rig.drained("orders")

    assert 0 < len(tasks) < 20
