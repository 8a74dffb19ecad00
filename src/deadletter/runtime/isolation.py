"""
Handlers in processes of their own.

A crash, a time limit or a memory limit costs one message, not the worker: the process is
killed and replaced without affecting its neighbours. Processes are spawned, never forked,
and stay warm from one message to the next.

When a worker is killed, the kernel ends the processes of its handlers, but not what those
have started. `OrphanGuard` runs a small process that knows their process groups, and kills
them when the worker's end of a pipe is closed.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Clock

from .attempt import TimeLimitExceeded
from .deliveries import HandlerNote
from .handlers import JSON, Context
from .isolation_wire import (
    LENGTH,
    Answer,
    Ask,
    Beat,
    Done,
    Failed,
    Hello,
    Ready,
    Request,
    UnusableHandler,
    WorkerLost,
    frame,
    length,
    read_answer,
    revive,
)

_PATIENCE: Final = 1.0  # seconds it has to end
_SCRIPT: Final = str(Path(__file__).with_name("orphan_guard_process.py"))


class OrphanGuard:
    """Process groups that must not outlive this process, however it ends."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self.process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def add(self, group: int) -> None:
        """Kill this group when we are gone."""
        self._groups.add(group)
        if not self._tell(f"+{group}\n"):
            self.close()  # somebody has killed it, or there was none yet
            self._start()
            for one in self._groups:
                self._tell(f"+{one}\n")

    def remove(self, group: int) -> None:
        """Forget this group: it has ended."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard; groups that are left are killed."""
        pipe, self._pipe = self._pipe, None
        process, self.process = self.process, None
        if pipe is not None:
            os.close(pipe)
        if process is not None:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:  # a fork of ours keeps the pipe open
                process.kill()
                process.wait()

    def _start(self) -> None:
        theirs, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self.process = subprocess.Popen(  # noqa: S603 -- our own
                [sys.executable, "-I", "-S", _SCRIPT, str(theirs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs,),
                start_new_session=True,  # whoever signals our group does not mean it
            )
        finally:
            os.close(theirs)

    def _tell(self, line: str) -> bool:
        if self._pipe is None:
            return False
        with suppress(BlockingIOError):
            try:
                os.write(self._pipe, line.encode())
            except BrokenPipeError:
                return False
        return True


_START_LIMIT: Final = 60.0  # seconds to start and load a handler
_LAST_WORDS: Final = 2.0  # seconds an idle process has to end by itself


class ProcessRunner:
    """
    A handler that runs in up to `processes` processes, one message in each.

    `target` is "module:attribute". The handler's own errors are raised here; a
    process that dies raises WorkerLost, one that overstays `time_limit` seconds is
    killed and raises TimeLimitExceeded. `memory_limit` is in bytes of address
    space, for each process.
    """

    def __init__(
        self,
        *,
        target: str,
        processes: int,
        time_limit: float | None,
        memory_limit: int | None,
        clock: Clock,
        guard: OrphanGuard,
    ) -> None:
        _check(target)
        self._hello = Hello(target, (), memory_limit)
        self._time_limit = time_limit
        self._clock = clock
        self._guard = guard
        self._room = asyncio.Semaphore(processes)
        self._idle: list[_Child] = []
        self._alive: set[_Child] = set()
        self._is_closed = False

    async def start(self) -> None:
        """Start one process, to see that the handler can be loaded."""
        self._idle.append(await self._spawn())

    async def __call__(self, delivery: Delivery) -> object:
        """Run the handler; cancelled, its process is killed."""
        async with self._room:
            child = await self._take()
            try:
                answer = await self._ask(child, delivery)
            except BaseException:
                child.kill()
                raise
            if isinstance(answer, Failed) and "MemoryError" in answer.names:
                child.kill()  # what it still has may not be enough for the next one
            elif not self._is_closed:
                self._idle.append(child)
        if isinstance(answer, Done):
            return _value(answer)
        if isinstance(answer, Ready | UnusableHandler | Beat | HandlerNote):
            raise WorkerLost(f"the handler's process answered {answer!r}")
        raise revive(answer)

    async def close(self) -> None:
        """End all processes; what still runs in one is killed."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for child in idle:
            child.hang_up()
        for child in self._alive.difference(idle):
            child.kill()
        ending = {child.exited for child in self._alive}
        if not ending:
            return
        await asyncio.wait(ending, timeout=_LAST_WORDS)
        for child in tuple(self._alive):
            child.kill()
            await child.exited

    async def _ask(self, child: "_Child", delivery: Delivery) -> Answer:
        try:
            async with asyncio.timeout(self._time_limit):
                context = _context()
                wants = context is not None and context.keeps_results
                child.send(Ask(structs.replace(delivery, receipt=None), wants))
                while isinstance(answer := await child.answer(), Beat | HandlerNote):
                    if context is not None:
                        context.heard(answer if isinstance(answer, HandlerNote) else None)
                return answer
        except TimeoutError:
            raise TimeLimitExceeded(
                f"the handler ran longer than its time limit of "
                f"{self._time_limit:g} seconds and was killed"
            ) from None

    async def _take(self) -> "_Child":
        while self._idle:
            child = self._idle.pop()
            if not child.exited.done():
                return child
            child.hang_up()
        return await self._spawn()

    async def _spawn(self) -> "_Child":
        if self._is_closed:
            raise Unavailable("the processes of this handler have been ended")
        child = await _Child.spawn(self._guard)
        self._alive.add(child)
        child.exited.add_done_callback(lambda _: self._alive.discard(child))
        try:
            async with asyncio.timeout(_START_LIMIT):
                child.send(structs.replace(self._hello, path=tuple(sys.path)))
                answer = await child.answer()
        except BaseException:
            child.kill()
            raise
        if isinstance(answer, Ready):
            return child
        child.kill()
        text = answer.text if isinstance(answer, UnusableHandler) else "it gave no answer"
        raise ConfigError(f"the handler cannot be isolated: {text}")


class _Child:
    """One process, and our end of the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        guard: OrphanGuard,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._guard = guard
        self.exited = asyncio.ensure_future(process.wait())
        self.exited.add_done_callback(lambda _: self._end_group())

    @classmethod
    async def spawn(cls, guard: OrphanGuard) -> "_Child":
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "deadletter.runtime.isolation_child",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # killed with whatever the handler has started
            )
        guard.add(process.pid)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(process, reader, writer, guard)

    def send(self, request: Request) -> None:
        self._writer.write(frame(request))

    async def answer(self) -> Answer:
        """Its next answer; raises WorkerLost when there will be none."""
        reading = asyncio.ensure_future(self._read())
        try:
            # A process that the handler forked may keep the socket open, so the
            # end of the socket alone would not tell.
            await asyncio.wait({reading, self.exited}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=0.1)  # its last words
            if reading.done() and (answer := reading.result()) is not None:
                return answer
        finally:
            reading.cancel()
        self.kill()
        raise WorkerLost(_how_it_ended(await self.exited))

    def hang_up(self) -> None:
        """Let it end by itself."""
        self._writer.close()

    def kill(self) -> None:
        self._writer.close()
        if not self.exited.done():
            self._kill_group()

    def _end_group(self) -> None:
        self._kill_group()
        self._guard.remove(self._process.pid)

    def _kill_group(self) -> None:
        """Kill it, and whatever its handler has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _read(self) -> Answer | None:
        try:
            size = length(await self._reader.readexactly(LENGTH))
            return read_answer(await self._reader.readexactly(size))
        except (OSError, EOFError, ValueError):  # gone, or no longer making sense
            return None


def _check(target: str) -> None:
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute) or "<" in attribute:
        raise ConfigError(
            f"{target} cannot be run in another process: an isolated handler must be "
            "a function at the top of a module"
        )
    if module == "__main__":
        raise ConfigError(
            f"{attribute} cannot be run in another process because it is defined in "
            "the script itself: move it to a module of its own"
        )


def _context() -> Context | None:
    try:
        return Context.current()
    except LookupError:
        return None


def _value(done: Done) -> object:
    """Return what the handler returned, such that it is encoded as it was."""
    if done.body is None or done.content_type is None:
        return done.body
    return msgspec.Raw(done.body) if done.content_type == JSON else done.body.decode()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"the handler's process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the handler's process was killed by {name}"
