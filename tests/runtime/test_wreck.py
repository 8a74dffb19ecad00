"""Processes that have no memory or threads left end, and their claims with them."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.core.errors import Unavailable
from deadletter.ports import QueueInfo
from deadletter.runtime.handlers import started_threads
from deadletter.runtime.isolation_wire import Failed, revive
from deadletter.runtime.watchdog import StarvationCheck, is_wreck
from deadletter.testing.fakes import eventually

pytestmark = pytest.mark.slow

WORKER = """
import asyncio, sys, threading
from deadletter.app import App

app = App(sys.argv[1])

async def hungry():
    raise MemoryError

@app.handler("threads", lease=1.0)
def start_a_thread(body: bytes) -> None:
    thread = threading.Thread(target=print)
    thread._bootstrap = lambda: None  # as when there is no memory for its first frame
    thread.start()  # waits for it without end

@app.handler("tasks", lease=1.0)
async def start_a_task(body: bytes) -> None:
    asyncio.create_task(hungry())
    await asyncio.sleep(60)

@app.handler("answers", lease=1.0)
def no_room_for_an_answer(body: bytes) -> None:
    loop = app_loop[0]
    loop.call_soon_threadsafe = hungry_too

def hungry_too(*args):
    raise MemoryError

app_loop = []

async def main():
    app_loop.append(asyncio.get_running_loop())
    async with app:
        return await app.work(install_signals=True)

sys.exit(asyncio.run(main()))
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/wreck.db"


@pytest.fixture
def worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, url], stderr=subprocess.PIPE, env=os.environ
    ) as process:
        yield process
        process.kill()


async def queue_of(app: App, mailbox: str) -> QueueInfo:
    queues = await (await app.engine()).broker.queues()
    (queue,) = (one for one in queues if one.options.name == mailbox)
    return queue


@pytest.mark.parametrize("mailbox", ["threads", "tasks", "answers"])
async def test_a_wrecked_worker_ends_and_its_claims_run_out(
    url: str, worker: subprocess.Popen[bytes], mailbox: str
) -> None:
    async with App(url) as app:
        await app.send(mailbox, b"one")
        await eventually(lambda: worker.poll() is not None, within=40.0)
        _, err = worker.communicate()

        assert worker.returncode == 1
        assert err.endswith(b"dlq: out of memory or threads: this process ends\n")

        async def is_free() -> bool:
            await (await app.engine()).broker.sweep()
            return (await queue_of(app, mailbox)).suspects == 1

        await eventually(is_free, within=10.0)


async def test_a_process_ends_only_if_there_is_never_any_room() -> None:
    ended: list[str] = []
    rooms = iter([False, False, True])
    check = StarvationCheck(room=lambda: next(rooms), end=lambda: ended.append("end"))

    check.start()
    check.start()  # once is enough
    assert check.is_running
    await eventually(lambda: not check.is_running)

    assert ended == []
    check = StarvationCheck(room=lambda: False, end=lambda: ended.append("end"))
    check.start()
    await eventually(lambda: ended == ["end"])


def test_errors_that_say_so() -> None:
    there = Failed(names=("builtins.MemoryError", "builtins.Exception"), text="no room")

    assert is_wreck(MemoryError())
    assert is_wreck(RuntimeError("can't start new thread"))
    assert not is_wreck(RuntimeError("can't start the engine"))
    assert not is_wreck(revive(there))  # another process was out of memory
    assert not is_wreck(None)


def test_threads_that_cannot_be_started_are_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading._start_new_thread", refuse)

    with pytest.raises(Unavailable, match="3 threads for handlers could not be"):
        started_threads(3, "handle")


async def test_all_threads_are_there_before_the_first_message() -> None:
    threads = started_threads(3, "handle")
    try:
        names = await asyncio.get_running_loop().run_in_executor(threads, _names)
        assert sum(name.startswith("handle_") for name in names) == 3
    finally:
        threads.shutdown()


def _names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]
