"""
Scripts and commands that are run on a server.

A call is repeated only if it certainly had no effect. Callers know how to repeat a call
that may have had one.

A Lua script runs a whole batch in one atomic step. It is sent once and named by its digest
from then on; a server that has forgotten it (restart, SCRIPT FLUSH, another node) is sent
it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha1
from importlib.resources import files
from itertools import count
from secrets import randbits
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct
from redis.exceptions import NoScriptError

from deadletter.core.errors import Unavailable
from deadletter.kit import NoAnswer, when

from .address import ERRORS
from .connections import PATIENCE, Connections


class Script(Struct, frozen=True):
    """A script and its digest."""

    text: str
    sha: str


class Verbs(Struct, frozen=True):
    """The scripts of a mailbox; every engine has its own."""

    send: Script
    receive: Script
    undo: Script
    settle: Script
    extend: Script
    sweep: Script
    count: Script


def read(package: str | None, *names: str) -> Script:
    """Return one script from files in the folder `lua` of a package, in this order."""
    assert package is not None, "a module of a package"
    folder = files(package) / "lua"
    text = "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def when_stored(at: bytes) -> datetime:
    """Return a time that a script has stored, in microseconds since 1970."""
    return when(int(float(at)))


def seconds(duration: float) -> int:
    """Return a duration as whole microseconds, at least 0."""
    return max(0, round(duration * 1_000_000))


T = TypeVar("T")
Argument: TypeAlias = str | bytes | int
Now: TypeAlias = Callable[[], Argument]

_PAUSES: Final = (0.0, 0.05, 0.2)  # seconds before each further try
_HASTE: Final = 2.0  # seconds after which no further try is made
_MARGIN: Final = 5.0  # seconds a blocked call may answer late


def server_time() -> Argument:
    """Return no time: the server reads its own clock."""
    return ""


class ScriptRunner:
    """Runner of scripts and commands; calls on `patient` may block."""

    def __init__(self, caller: Connections, patient: Connections, now: Now = server_time) -> None:
        self._caller = caller
        self._patient = patient
        self._now = now
        self._background: set[asyncio.Task[Any]] = set()

    def begin(self, script: Script, keys: Sequence[str], *args: Argument) -> "asyncio.Task[Any]":
        """Start a script that gets the time as its first argument; return its task."""
        return self.start(self._run(script, keys, (self._now(), *args)))

    async def timed(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Run a script that gets the time as its first argument."""
        return await self._run(script, keys, (self._now(), *args))

    async def run(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Run a script; raise our errors, NoAnswer if it may have been run."""
        return await self._run(script, keys, args)

    async def command(self, *words: Argument) -> Any:
        """Run one command."""
        return await self._translated(words)

    async def blocked(self, command: str, key: str, within: float, name: str = "") -> None:
        """Wait for an entry with a command such as BLPOP, and remove it."""
        # The server takes 0 for "without a limit".
        words = (command, key, max(0.001, within))
        try:
            await self._patient.execute(words, within=within + _MARGIN, name=name)
        except ERRORS.known as error:
            raise ERRORS.translate(error) from error

    async def appear(self, name: str) -> None:
        """Open a connection that the server lists under this name, if there is none."""
        if not self._patient.has(name):
            with suppress(*ERRORS.known):
                await self._patient.execute(("PING",), name=name)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that continues when its caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    async def reconnect(self) -> None:
        """Close all connections; later calls open others."""
        await self._caller.drop()
        await self._patient.drop()

    async def close(self) -> None:
        """Finish the tasks in progress and close all connections."""
        if self._background:
            await asyncio.wait(self._background, timeout=2 * PATIENCE)
        await self._caller.close()
        await self._patient.close()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # marked as seen: those who wait for it get it all the same

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        words = ("EVALSHA", script.sha, len(keys), *keys, *args)
        try:
            return await self._caller.execute(words)
        except NoScriptError:
            if not self._caller.loads:
                return await self._translated(("EVAL", script.text, *words[2:]))
            return await self._named_again(script, words)
        except ERRORS.known as error:
            raise ERRORS.translate(error) from error

    async def _named_again(self, script: Script, words: Sequence[Argument]) -> Any:
        """Name a script again, since its name may have arrived damaged; else send it."""
        try:
            return await self._caller.execute(words)
        except NoScriptError:
            await self._load(script)
            return await self._translated(words)
        except ERRORS.known as error:
            raise ERRORS.translate(error) from error

    async def _load(self, script: Script) -> None:
        """Send a script; one that arrives damaged has another digest, and is never run."""
        said = await self._translated(("SCRIPT", "LOAD", script.text))
        if said != script.sha.encode():
            raise Unavailable("a script was damaged on its way to the server (its digest differs)")

    async def _translated(self, words: Sequence[Argument]) -> Any:
        try:
            return await self._caller.execute(words)
        except ERRORS.known as error:
            raise ERRORS.translate(error) from error


async def retry_unanswered(call: Callable[[bool], Awaitable[T]]) -> T:
    """
    Repeat a call that got no answer, for at most two seconds.

    The argument of `call` says whether an earlier call may have taken effect.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    again = False
    for pause in _PAUSES:
        try:
            return await call(again)
        except NoAnswer:
            if loop.time() - begun > _HASTE:
                raise
        again = True
        await asyncio.sleep(pause)
    return await call(again)


def tokens() -> Iterator[str]:
    """Return an endless series of names that no other process uses."""
    # Not from the injected dice: seeded dice repeat themselves.
    start = f"{randbits(64):x}"
    return (f"{start}-{number:x}" for number in count())
