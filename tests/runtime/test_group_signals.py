"""Signals to a group of loops, in real processes where they may hurt."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from group_rig import Turning, running


async def test_the_first_signal_asks_and_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]

    async with running(Turning(), install_signals=True, clock=SystemClock()) as (group, _, task):
        await eventually(lambda: not group.complaints())
        os.kill(os.getpid(), signal.SIGTERM)

        assert await asyncio.wait_for(task, 5.0) == 0

    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before


STUBBORN = """
    import asyncio, sys, time
    from deadletter.runtime.loop_group import LoopGroup
    from deadletter.runtime.deliveries import Heartbeat
    from deadletter.system import SystemClock

    clock = SystemClock()

    class Consumer:
        name = "worker orders"
        heartbeat = Heartbeat(clock)

        async def run(self, stop):
            print("running", flush=True)
            {body}

        def ready(self):
            return None

    group = LoopGroup([Consumer()], clock=clock, observe=print)
    sys.exit(asyncio.run(group.run()))
"""


async def start(body: str) -> asyncio.subprocess.Process:
    script = textwrap.dedent(STUBBORN).format(body=body)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"running\n"
    return process


async def test_the_second_signal_does_not_wait() -> None:
    process = await start("await asyncio.sleep(60)")
    process.terminate()
    await asyncio.sleep(0.2)  # two at the same moment would count as one

    process.terminate()

    assert await asyncio.wait_for(process.wait(), 10.0) == 130


async def test_two_signals_at_the_same_moment_are_one() -> None:
    process = await start("await stop.wait(); await asyncio.sleep(0.5)")

    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)

    assert await asyncio.wait_for(process.wait(), 10.0) == 0


async def test_the_third_signal_ends_even_a_blocked_event_loop() -> None:
    process = await start("time.sleep(60)")
    ended = asyncio.create_task(process.wait())

    # One that comes before the last was noticed does not count.
    sent = 0
    while not ended.done() and sent < 50:
        process.terminate()
        sent += 1
        await asyncio.wait([ended], timeout=0.2)

    assert sent >= 3
    assert await asyncio.wait_for(ended, 1.0) == -signal.SIGTERM


DEAF = """
    import asyncio, sys
    from deadletter.app import App
    from deadletter.stores.memory import MemoryEngine
    from deadletter.runtime import loop_group

    loop_group._RELEASE_TIMEOUT = 0.5
    app = App("memory://")
    app._patience = lambda: 1.0

    async def close(self):
        while True:  # as one that waits for an answer that never comes
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    MemoryEngine.close = close

    @app.handler("orders", grace=0.0)
    async def handle(body: bytes) -> None:
        pass

    print("running", flush=True)
    sys.exit(app.run())
"""


async def test_a_process_that_cannot_close_its_engine_ends_all_the_same() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(DEAF), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"running\n"
    await asyncio.sleep(1.0)  # its signals are handled by now

    process.terminate()

    assert await asyncio.wait_for(process.wait(), 15.0) == -signal.SIGKILL
