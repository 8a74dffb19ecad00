"""The wire between a process and its services."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from deadletter.core.errors import Unavailable
from deadletter.ports import Broker, Ledger, LedgerKey
from deadletter.testing.virtual_time import Process, run_virtual
from simulation.faulty import Call, Fault, Wire, far_broker, far_ledger
from simulation.trace import Trace


class Notebook:
    """A port that writes down what was asked of it."""

    def __init__(self) -> None:
        self.mailbox = "work"
        self.asked: list[str] = []

    def source(self, mailbox: str) -> "Notebook":
        return self

    async def look(self, keys: Sequence[LedgerKey]) -> list[None]:
        await asyncio.sleep(1)
        self.asked.append("look")
        return [None for _ in keys]


class Always:
    """The same weather for every call."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def fault(self, call: Call) -> Fault:
        return self._fault

    def delay(self) -> float:
        return 0.25


def over(
    fault: Fault, work: Callable[[Ledger], Coroutine[Any, Any, object]]
) -> tuple[Process, Notebook, asyncio.Task[object]]:
    """Start some work over a wire where every call meets that fault."""
    process, notebook = Process("p"), Notebook()
    wire = Wire(process, Always(fault), trace=Trace(), hits=Counter(), witness=lambda *_: None)
    ledger = far_ledger(cast(Ledger, notebook), wire)
    return process, notebook, process.start(work(ledger))


async def looking(ledger: Ledger) -> object:
    return await ledger.look([LedgerKey("work", "k")])


def test_a_call_takes_its_time_both_ways() -> None:
    async def main() -> None:
        _, notebook, task = over(Fault.NONE, looking)

        assert await task == [None]
        assert notebook.asked == ["look"]
        assert asyncio.get_running_loop().time() == 1.5

    run_virtual(main())


@pytest.mark.parametrize(
    ("fault", "asked"), [(Fault.REQUEST_LOST, []), (Fault.OUTAGE, []), (Fault.REPLY_LOST, ["look"])]
)
def test_unanswered_calls_have_unknown_outcomes(fault: Fault, asked: list[str]) -> None:
    async def main() -> None:
        _, notebook, task = over(fault, looking)

        with pytest.raises(Unavailable):
            await task
        assert notebook.asked == asked

    run_virtual(main())


@pytest.mark.parametrize(
    ("fault", "asked"), [(Fault.DEATH_BEFORE, []), (Fault.DEATH_AFTER, ["look"])]
)
def test_a_caller_may_die_before_or_after(fault: Fault, asked: list[str]) -> None:
    async def main() -> None:
        process, notebook, task = over(fault, looking)

        await process.ended.wait()
        await asyncio.sleep(10)
        assert notebook.asked == asked
        assert not task.done()

    run_virtual(main())


def test_calls_of_a_dead_process_still_take_effect() -> None:
    async def main() -> None:
        process, notebook, _ = over(Fault.NONE, looking)

        await asyncio.sleep(0.5)  # the server is at it
        process.kill()
        await asyncio.sleep(10)
        assert notebook.asked == ["look"]

    run_virtual(main())


def test_sources_are_as_far_away_as_their_broker() -> None:
    async def main() -> None:
        process = Process("p")
        hits: Counter[str] = Counter()
        wire = Wire(
            process, Always(Fault.REQUEST_LOST), trace=Trace(), hits=hits, witness=lambda *_: None
        )
        source = far_broker(cast(Broker, Notebook()), wire).source("work")

        assert source.mailbox == "work"
        with pytest.raises(Unavailable):
            await cast(Any, source).look([])
        assert hits == {"request-lost broker.look": 1}

    run_virtual(main())
