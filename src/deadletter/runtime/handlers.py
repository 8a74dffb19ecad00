"""Handlers, sync or async, adapted once at registration."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import reduce, wraps
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from deadletter.core.message import Delivery
from deadletter.ports import Clock, Source

Handler: TypeAlias = Callable[[Delivery], Awaitable[object]]
Middleware: TypeAlias = Callable[[Handler], Handler]


@runtime_checkable
class AroundSource(Protocol):
    """Middleware that goes around receiving and settling as well."""

    def around(self, source: Source, clock: Clock) -> Source:
        """What is received from and settled with instead."""


class Raised(Struct, frozen=True):
    """What a sync handler raised, carried over from its thread."""

    error: BaseException


def as_async(handler: Callable[..., object], threads: Executor) -> Handler:
    """
    Make any handler awaitable.

    A sync handler runs on `threads` and cannot be interrupted: when it overstays
    its time limit we stop waiting, but its thread runs on.
    """
    if is_async(handler):
        return handler  # type: ignore[return-value]

    def guarded(delivery: Delivery) -> object:
        # Carried as a value: some exceptions (StopIteration) do not survive
        # being set on a future.
        try:
            return handler(delivery)
        except BaseException as error:  # noqa: BLE001 -- handlers may raise anything
            return Raised(error)

    @wraps(handler)
    async def on_thread(delivery: Delivery) -> object:
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(threads, context.run, guarded, delivery)
        if isinstance(answer, Raised):
            raise answer.error
        return answer

    return on_thread


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    if iscoroutinefunction(handler):
        return True
    return iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def wrap(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Put middleware around a handler; the first listed is the outermost."""
    return reduce(lambda inner, layer: layer(inner), reversed(middleware), handler)


def around(source: Source, middleware: Sequence[Middleware], clock: Clock) -> Source:
    """Put middleware around a source, where it wants to be; else it stays itself."""
    for layer in reversed(middleware):
        if isinstance(layer, AroundSource):
            source = layer.around(source, clock)
    return source
