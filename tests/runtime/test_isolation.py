"""Handlers in processes of their own: what they do to them costs one message."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.failure import Trouble
from deadletter.core.failure.capture import capture
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.message import Delivery, Lineage, Message
from deadletter.runtime.attempt import TimeLimitExceeded
from deadletter.runtime.deliveries import ClaimedDelivery, HandlerNote
from deadletter.runtime.handlers import Context
from deadletter.runtime.isolation import OrphanGuard, ProcessRunner
from deadletter.runtime.isolation_wire import WorkerLost
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from isolation_rig import NOW, MiB, delivery, is_alive, running

pytestmark = pytest.mark.slow


async def test_a_process_stays_warm_and_is_not_ours() -> None:
    async with running("pid") as runner:
        first, second = await runner(delivery()), await runner(delivery())

        assert first == second
        assert first != str(os.getpid())


async def test_async_handlers_run_there_too() -> None:
    async with running("pid_later") as runner:
        assert await runner(delivery()) == await runner(delivery())


@pytest.mark.parametrize(
    ("handler", "body", "value"),
    [
        ("echo", b"\x00\xff" * 100_000, b"\x00\xff" * 100_000),
        ("text", b"hello", "HELLO"),
        ("order", b'{"id": 41}', msgspec.Raw(b'{"id":42}')),
    ],
)
async def test_bodies_and_answers_pass_unharmed(handler: str, body: bytes, value: object) -> None:
    async with running(handler) as runner:
        assert await runner(delivery(body)) == value


async def test_results_are_not_sent_back_without_a_reply_address() -> None:
    async with running("unsendable") as runner:
        wanted = delivery()
        message = msgspec.structs.replace(wanted.message, reply_to=None)
        unwanted = msgspec.structs.replace(wanted, message=message)

        assert await runner(unwanted) is None
        with pytest.raises(ConfigError, match="cannot be sent"):
            await runner(wanted)


async def test_the_delivery_arrives_with_all_it_has_but_its_receipt() -> None:
    lineage = Lineage(letter_id="l", generation=2, campaign="c")
    message = Message(
        id="m-1",
        body=b"",
        sent_at=NOW,
        headers=(("a", b"\xff"), ("a", b"")),
        expires_at=NOW,
        reply_to="answers",
        lineage=lineage,
    )
    given = Delivery(message=message, mailbox="orders", attempt=3, receipt=object())
    async with running("attempt") as runner:
        assert await runner(given) == "3 m-1 True"
    async with running("attempt_later") as runner:
        assert await runner(given) == "3 m-1 True"


async def test_a_handler_may_print_what_it_likes(capfd: pytest.CaptureFixture[str]) -> None:
    async with running("noisy") as runner:
        assert await runner(delivery()) == "done"

    out, err = capfd.readouterr()
    assert "on stdout" in out
    assert "and stderr" in err


async def test_signs_of_life_reach_the_worker() -> None:
    held = ClaimedDelivery(delivery(), 0.0)
    started = time.monotonic()
    Context(held, SystemClock()).enter()
    async with running("beats") as runner:
        await runner(delivery())

        assert held.beaten > started


async def test_notes_and_what_is_returned_reach_whoever_wants_them() -> None:
    noted: list[HandlerNote] = []
    held = ClaimedDelivery(delivery(), 0.0)
    held.on_note = lambda held, note: noted.append(note)
    message = msgspec.structs.replace(held.delivery.message, reply_to=None)
    given = msgspec.structs.replace(held.delivery, message=message)
    async with running("notes") as runner:
        Context(held, SystemClock()).enter()
        unasked = await runner(given)
        Context(held, SystemClock(), keeps_results=True).enter()
        result = await runner(given)

    assert noted == [HandlerNote(progress=b"50"), HandlerNote(line="half of it")] * 2
    assert (unasked, msgspec.json.encode(result)) == (None, b'{"sum":2}')


async def test_a_crash_costs_one_message(capfd: pytest.CaptureFixture[str]) -> None:
    crashes = {
        b"segfault": "SIGSEGV",
        b"abort": "SIGABRT",
        b"exit": "exit code 3",
        b"kill": "SIGKILL",
    }
    async with running("dies") as runner:
        for how, text in crashes.items():
            with pytest.raises(WorkerLost, match=text) as raised:
                await runner(delivery(how))

            assert await runner(delivery(b"fine")) is None
            failure = capture(raised.value, DEFAULT)
            assert failure.trouble is Trouble.WORKER_LOST
            assert failure.code == "WORKER_LOST"


async def test_a_crash_is_noticed_even_if_a_child_of_it_lives_on(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    async with running("dies_leaving_a_child") as runner:
        async with asyncio.timeout(10.0):
            with pytest.raises(WorkerLost, match="exit code 7"):
                await runner(delivery(str(note).encode()))

        await eventually(lambda: not is_alive(int(note.read_text())))


async def test_a_crash_is_noticed_even_if_a_stranger_holds_the_line(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    async with running("dies_leaving_a_stranger") as runner, asyncio.timeout(10.0):
        with pytest.raises(WorkerLost, match="exit code 7"):
            await runner(delivery(str(note).encode()))

    os.kill(int(note.read_text()), signal.SIGKILL)


async def test_a_process_that_dies_while_idle_costs_nothing() -> None:
    async with running("pid") as runner:
        first = str(await runner(delivery()))
        os.kill(int(first), signal.SIGKILL)
        await eventually(lambda: not is_alive(int(first)))
        await asyncio.sleep(0.05)

        second = await runner(delivery())

        assert second != first


async def test_the_time_limit_kills_the_handler_and_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with running("hangs", time_limit=0.5) as runner:
        await runner.start()
        with pytest.raises(TimeLimitExceeded, match=r"0\.5 seconds"):
            await runner(delivery(str(note).encode()))

        pids = [int(pid) for pid in note.read_text().split()]
        await eventually(lambda: not any(is_alive(pid) for pid in pids))


async def test_cancelling_kills_the_handler(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with running("hangs") as runner:
        task = asyncio.create_task(runner(delivery(str(note).encode())))
        await eventually(lambda: note.exists() and note.read_text())

        task.cancel()
        await asyncio.wait({task})

        pids = [int(pid) for pid in note.read_text().split()]
        await eventually(lambda: not any(is_alive(pid) for pid in pids))


async def test_the_memory_limit_costs_one_message() -> None:
    async with running("devours", memory_limit=400 * MiB) as runner:
        with pytest.raises((MemoryError, WorkerLost)):
            await runner(delivery())

        assert await runner(delivery(b"fine")) is None


async def test_a_memory_limit_below_what_loading_takes_is_refused() -> None:
    async with running("echo", memory_limit=MiB) as runner:
        with pytest.raises(ConfigError, match="1 MiB is too low"):
            await runner.start()


async def test_at_most_so_many_run_at_once() -> None:
    async with running("waits", processes=2) as runner:
        await asyncio.gather(runner(delivery()), runner(delivery()))
        started = time.monotonic()

        await asyncio.gather(*(runner(delivery()) for _ in range(4)))

        assert time.monotonic() - started >= 0.6
        assert len(runner._alive) == 2


async def test_closing_ends_idle_and_busy_processes(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    async with running("hangs", processes=2) as runner:
        await runner.start()
        idle = runner._idle[0]._process.pid
        runner._idle.clear()
        task = asyncio.create_task(runner(delivery(str(note).encode())))
        await eventually(lambda: note.exists() and note.read_text())
        pids = [idle, *(int(pid) for pid in note.read_text().split())]

        await runner.close()

        await asyncio.wait({task})
        assert isinstance(task.exception(), WorkerLost)
        await eventually(lambda: not any(is_alive(pid) for pid in pids))
        with pytest.raises(Unavailable, match="have been ended"):
            await runner(delivery())


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("isolated_handlers:nobody", "cannot be loaded"),
        ("isolated_handlers:NOT_A_HANDLER", "not a function"),
        ("no_such_module:handle", "no_such_module"),
    ],
)
async def test_a_handler_that_cannot_be_loaded_is_said_at_the_start(target: str, text: str) -> None:
    guard = OrphanGuard()
    runner = ProcessRunner(
        target=target,
        processes=1,
        time_limit=None,
        memory_limit=None,
        clock=SystemClock(),
        guard=guard,
    )

    with pytest.raises(ConfigError, match=text):
        await runner.start()

    await runner.close()
    guard.close()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("shop", "top of a module"),
        ("shop:make.<locals>.handle", "top of a module"),
        ("__main__:handle", "move it to a module"),
    ],
)
def test_a_handler_that_cannot_be_isolated_is_said_even_earlier(target: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ProcessRunner(
            target=target,
            processes=1,
            time_limit=None,
            memory_limit=None,
            clock=SystemClock(),
            guard=OrphanGuard(),
        )


@pytest.mark.parametrize("handler", ["hangs", "hangs_deaf", "hangs_in_c"])
async def test_processes_end_with_their_worker(tmp_path: Path, handler: str) -> None:
    note = tmp_path / "pids"
    script = (
        "import asyncio, sys\n"
        "sys.path[:0] = sys.argv[3:]\n"
        "from isolation_rig import delivery, running\n"
        "async def main():\n"
        "    async with running(sys.argv[2]) as runner:\n"
        "        await runner(delivery(sys.argv[1].encode()))\n"
        "asyncio.run(main())\n"
    )
    here = Path(__file__).parent.parent
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, str(note), handler, str(here))
    )
    await eventually(lambda: note.exists() and note.read_text(), within=20.0)
    started = [int(pid) for pid in note.read_text().split()]

    worker.kill()
    await worker.wait()

    # The handler's own process, and what it has started.
    await eventually(lambda: not any(map(is_alive, started)), within=2.0)


async def test_a_guard_that_is_killed_is_replaced() -> None:
    child = await asyncio.create_subprocess_exec("sleep", "60", process_group=0)
    guard = OrphanGuard()
    for group in (child.pid, child.pid):
        guard.add(group)
        assert guard.process is not None
        guard.process.kill()
        guard.process.wait()
    guard.add(child.pid)

    guard.close()  # as if we were gone

    assert await child.wait() == -signal.SIGKILL
