"""
Ports over a bad wire: every call of every port goes through one function.

    delay -> maybe the request is lost -> applied -> delay -> maybe the reply is lost

Whoever calls is told `Unavailable` in both cases and cannot tell them apart. What
is applied is applied in the server, atomically, whether the caller lives or not.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from enum import StrEnum
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from deadletter.core.errors import Unavailable
from deadletter.ports import AtomicBurial, AtomicReplay, Broker, Ledger, LetterStore
from deadletter.testing.virtual_time import Process, VirtualLoop
from simulation.trace import Trace

Apply: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class Fault(StrEnum):
    """What may happen to one call."""

    NONE = "none"
    REQUEST_LOST = "request-lost"  # nothing happened, and nobody knows
    REPLY_LOST = "reply-lost"  # it happened, and nobody knows
    DEATH_BEFORE = "death-before"  # the caller dies before it is applied
    DEATH_AFTER = "death-after"  # ...or right after
    OUTAGE = "outage"  # the service is down


class Call(Struct, frozen=True):
    """One call of a port."""

    process: str
    service: str  # broker, office, ledger
    verb: str

    def __str__(self) -> str:
        return f"{self.process} {self.service}.{self.verb}"


Witness: TypeAlias = Callable[[Call, Sequence[Any], Any], None]
"""Is told of every call that was applied, with its arguments and its result."""


class Weather(Protocol):
    """Decides what happens to calls."""

    def fault(self, call: Call) -> Fault:
        """What happens to this one."""

    def delay(self) -> float:
        """Seconds that a request, or a reply, is under way."""


class Wire:
    """What lies between one process and the services it calls."""

    def __init__(
        self,
        process: Process,
        weather: Weather,
        *,
        trace: Trace,
        hits: Counter[str],
        witness: Witness,
    ) -> None:
        self.process = process
        self._witness = witness
        self._weather = weather
        self._trace = trace
        self._hits = hits
        self._loop = cast(VirtualLoop, asyncio.get_running_loop())

    async def call(self, service: str, verb: str, apply: Apply, *args: Any) -> Any:
        """Have something done by a service, if the weather allows."""
        if self._loop.is_over:
            await never()
        call = Call(self.process.name, service, verb)
        fault = self._weather.fault(call)
        self._note(call, fault)
        await asyncio.sleep(self._weather.delay())
        if fault is Fault.DEATH_BEFORE:
            await self._die()
        if fault in (Fault.REQUEST_LOST, Fault.OUTAGE):
            await asyncio.sleep(self._weather.delay())
            raise Unavailable(f"{service} did not answer ({fault})")
        # In a context of its own: it is the server that does it, and a caller
        # who dies meanwhile leaves nothing half done.
        result = await self._loop.create_task(apply(), context=Context())
        self._witness(call, args, result)
        if fault is Fault.DEATH_AFTER:
            await self._die()
        await asyncio.sleep(self._weather.delay())
        if fault is Fault.REPLY_LOST:
            raise Unavailable(f"{service} did not answer ({fault})")
        return result

    async def _die(self) -> None:
        self.process.kill()
        await never()

    def _note(self, call: Call, fault: Fault) -> None:
        self._trace.note(self._loop.time(), f"{call} {fault}")
        if fault is not Fault.NONE:
            self._hits[f"{fault} {call.service}.{call.verb}"] += 1


async def never() -> None:
    """Wait for ever."""
    await asyncio.get_running_loop().create_future()


def far_broker(broker: Broker, wire: Wire) -> Broker:
    """A broker at the other end of a wire, with its sources and sinks."""
    return cast(Broker, _Far(broker, "broker", wire))


def far_letters(letters: LetterStore, wire: Wire) -> LetterStore:
    """An office at the other end of a wire."""
    return cast(LetterStore, _Far(letters, "office", wire))


def far_ledger(ledger: Ledger, wire: Wire) -> Ledger:
    """A ledger at the other end of a wire."""
    return cast(Ledger, _Far(ledger, "ledger", wire))


def far_undertaker(atomic_burial: AtomicBurial, wire: Wire) -> AtomicBurial:
    """Atomic burial at the other end of a wire, beside the office."""
    return cast(AtomicBurial, _Far(atomic_burial, "office", wire))


def far_postman(atomic_replay: AtomicReplay, wire: Wire) -> AtomicReplay:
    """Atomic replay at the other end of a wire, beside the office."""
    return cast(AtomicReplay, _Far(atomic_replay, "office", wire))


class _Far:
    """Any port, with a wire in between."""

    def __init__(self, port: object, service: str, wire: Wire) -> None:
        self._port = port
        self._service = service
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._port, name)
        if iscoroutinefunction(there):
            self.__dict__[name] = verb = self._verb(name, there)
            return verb
        if name in ("source", "sink"):
            return lambda mailbox: _Far(there(mailbox), self._service, self._wire)
        return there

    def _verb(
        self, name: str, there: Callable[..., Coroutine[Any, Any, object]]
    ) -> Callable[..., Awaitable[object]]:
        def here(*args: Any, **named: Any) -> Awaitable[object]:
            apply = partial(there, *args, **named)
            return self._wire.call(self._service, name, apply, *args)

        return here
