"""
The way to the server.

Nothing is repeated here but what surely was not done: whoever calls knows how a
repetition is told from a first try.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from redis.exceptions import NoScriptError

from deadletter.core.errors import Unavailable

from .errors import KNOWN, Unsure, translated
from .scripts import Script
from .wires import PATIENCE, Caller

T = TypeVar("T")
Argument: TypeAlias = str | bytes | int
Now: TypeAlias = Callable[[], Argument]

_PAUSES: Final = (0.0, 0.05, 0.2)  # seconds before each further try
_HASTE: Final = 2.0  # seconds after which no further try is made
_MARGIN: Final = 5.0  # seconds a blocked call may answer late


def server_time() -> Argument:
    """Let the server look at its own clock."""
    return ""


class Link:
    """Runs scripts on the server; `patient` is the one whose calls may block."""

    def __init__(self, caller: Caller, patient: Caller, now: Now = server_time) -> None:
        self._caller = caller
        self._patient = patient
        self._now = now
        self._background: set[asyncio.Task[Any]] = set()

    def begin(
        self, script: Script, keys: Sequence[str], *args: Argument
    ) -> "asyncio.Task[Any]":
        """Begin to run a script that asks what time it is."""
        return self.start(self._run(script, keys, (self._now(), *args)))

    async def timed(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Run a script that asks what time it is."""
        return await self._run(script, keys, (self._now(), *args))

    async def run(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Run a script; raises our errors, Unsure when it may have been run."""
        return await self._run(script, keys, args)

    async def command(self, *words: Argument) -> Any:
        """Run one command."""
        return await self._translated(words)

    async def blocked(
        self, command: str, key: str, within: float, name: str = ""
    ) -> None:
        """Wait for an entry with a command such as BLPOP, and take it."""
        # To the server no time at all would mean for ever.
        words = (command, key, max(0.001, within))
        try:
            await self._patient.execute(words, within=within + _MARGIN, name=name)
        except KNOWN as error:
            raise translated(error) from error

    async def appear(self, name: str) -> None:
        """Have the server list a connection of ours under this name, if it can."""
        if not self._patient.has(name):
            with suppress(*KNOWN):
                await self._patient.execute(("PING",), name=name)

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin something that goes on whoever stops waiting for it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    async def reconnect(self) -> None:
        """Give up all connections for others."""
        await self._caller.drop()
        await self._patient.drop()

    async def close(self) -> None:
        """Finish what is under way and close all connections."""
        if self._background:
            await asyncio.wait(self._background, timeout=2 * PATIENCE)
        await self._caller.close()
        await self._patient.close()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: those who wait for it get it all the same

    async def _run(
        self, script: Script, keys: Sequence[str], args: Sequence[Argument]
    ) -> Any:
        words = ("EVALSHA", script.sha, len(keys), *keys, *args)
        try:
            return await self._caller.execute(words)
        except NoScriptError:
            if not self._caller.loads:
                return await self._translated(("EVAL", script.text, *words[2:]))
            return await self._named_again(script, words)
        except KNOWN as error:
            raise translated(error) from error

    async def _named_again(self, script: Script, words: Sequence[Argument]) -> Any:
        """Name a script once more: its name may have arrived changed. Else send it."""
        try:
            return await self._caller.execute(words)
        except NoScriptError:
            await self._load(script)
            return await self._translated(words)
        except KNOWN as error:
            raise translated(error) from error

    async def _load(self, script: Script) -> None:
        """Send a script; one that arrived changed is another one, and never run."""
        said = await self._translated(("SCRIPT", "LOAD", script.text))
        if said != script.sha.encode():
            raise Unavailable("a script arrived changed at the server")

    async def _translated(self, words: Sequence[Argument]) -> Any:
        try:
            return await self._caller.execute(words)
        except KNOWN as error:
            raise translated(error) from error


async def surely(call: Callable[[bool], Awaitable[T]]) -> T:
    """
    Call until it is known whether it was done, within a moment.

    From the second time on it is told that it may have been done already.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    again = False
    for pause in _PAUSES:
        try:
            return await call(again)
        except Unsure:
            if loop.time() - begun > _HASTE:
                raise
        again = True
        await asyncio.sleep(pause)
    return await call(again)
