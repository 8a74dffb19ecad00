"""
A worker in a process of its own behind a wire that can be bad, and somebody watching.

Messages are sent past the bad wire, each with a checksum of its content in its body,
so that whatever the handler got can be judged.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from deadletter.core.errors import NotFound
from deadletter.core.message import Message
from deadletter.ports import Engine
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import open_engine

from .proxy import HOST, FaultProxy, fault_proxy

WORKER = Path(__file__).with_name("wire_worker.py")


class Rig:
    """A worker, its wire, and the straight way to the same server."""

    def __init__(self, proxy: FaultProxy, engine: Engine, place: Path) -> None:
        self.proxy = proxy
        self.engine = engine
        self.sent = 0
        self._place = place
        self._health = _free_port()
        self._worker: Process | None = None

    async def start(self, url: str, office: str) -> None:
        """Start the worker behind the proxy, and wait until it is ready."""
        log = (self._place / "log").open("ab")
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable,
            str(WORKER),
            self.proxy.through(url),
            office,
            str(self._place / "effects"),
            env=os.environ | {"PYTHONPATH": _path(), "WIRE_HEALTH": str(self._health)},
            stdout=log,
            stderr=log,
        )
        log.close()
        await eventually(self.is_ready, within=30.0)

    async def send(self, count: int, size: int = 200) -> None:
        """Send so many messages straight to the server."""
        messages = []
        for number in range(self.sent, self.sent + count):
            content = os.urandom(size // 2).hex().encode()
            body = f"{number} {sha256(content).hexdigest()} ".encode() + content
            message = Message(id=f"m-{number}", body=body, sent_at=SystemClock().now())
            messages.append(message)
        sink = self.engine.broker.sink("orders")

        await sink.send(messages)
        self.sent += count

    def handled(self) -> Counter[str]:
        """What the handler was given, by number; "mangled" is what was not whole."""
        effects = self._place / "effects"
        return Counter(effects.read_text().split() if effects.exists() else [])

    async def is_ready(self) -> bool:
        """Whether the worker says that it works."""
        return await self.complaint() == ""

    async def complaint(self) -> str:
        """What the worker says is wrong with it; nothing when all is well."""
        try:
            status, body = await _get(self._health, "/health/ready")
        except (OSError, EOFError, TimeoutError):
            return "nobody answers"
        return "" if status == 200 else body

    async def seconds_until_red(self, within: float = 70.0) -> tuple[float, str]:
        """How long it takes until the worker says that it does not work, and why."""
        began = time.monotonic()
        while not (why := await self.complaint()):
            if time.monotonic() - began > within:
                raise AssertionError(f"said to be ready for {within:.0f} s")
            await asyncio.sleep(0.1)
        return time.monotonic() - began, why

    async def seconds_until_handled(self, within: float = 120.0) -> float:
        """How long it takes until everything that was sent has been handled."""
        began = time.monotonic()
        await eventually(self._is_all_handled, within=within)
        return time.monotonic() - began

    async def send_until(self, over: Callable[[], bool], within: float) -> None:
        """Send a few messages at a time until something is so."""
        deadline = time.monotonic() + within
        while not over():
            assert time.monotonic() < deadline, "not in time"
            await self.send(20)
            await asyncio.sleep(0.2)

    async def seconds_until_ended(self, within: float = 120.0) -> float:
        """How long it takes until everything was handled, or is a letter."""
        began = time.monotonic()
        await eventually(self._is_all_ended, within=within)
        return time.monotonic() - began

    async def letter_codes(self) -> list[str]:
        """The codes of all letters."""
        assert self.engine.letters is not None
        page = await self.engine.letters.find(limit=500)
        return [head.code for head in page.heads]

    async def stop(self, within: float = 30.0) -> int:
        """Ask the worker to stop, and say what it ended with."""
        assert self._worker is not None
        self._worker.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._worker.wait(), within)

    async def kill(self) -> None:
        """End the worker, if it has not ended."""
        if self._worker is not None and self._worker.returncode is None:
            self._worker.kill()
            await self._worker.wait()

    def log(self) -> str:
        """What the worker said."""
        return (self._place / "log").read_text(errors="replace")

    async def _is_all_ended(self) -> bool:
        handled = self.handled()
        missing = sum(not handled[str(number)] for number in range(self.sent))
        # A letter may not know its own name any more.
        return missing <= len(await self.letter_codes())

    def _is_all_handled(self) -> bool:
        handled = self.handled()
        return all(handled[str(number)] for number in range(self.sent))


@asynccontextmanager
async def a_rig(url: str, port: int, place: Path, office: str = "") -> AsyncIterator[Rig]:
    """A worker behind a proxy to that server, which is good for now."""
    engine = await open_engine(url, office=office or None)
    try:
        with suppress(NotFound):  # what the test before left on this server, full or not
            await engine.broker.delete("orders", force=True)
        async with fault_proxy(port) as proxy:
            rig = Rig(proxy, engine, place)
            try:
                await rig.start(url, office)
                yield rig
            finally:
                await rig.kill()
    finally:
        await engine.close()


async def _get(port: int, path: str) -> tuple[int, str]:
    async with asyncio.timeout(3):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    status = int(head.split()[1])
    reasons: Any = msgspec.json.decode(body).get("reasons", [])
    return status, "; ".join(f"{one['loop']}: {one['reason']}" for one in reasons)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        return int(free.getsockname()[1])


def _path() -> str:
    return ":".join(part for part in sys.path if part)
