"""Handlers, sync or async, adapted once at registration."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import reduce, wraps
from inspect import iscoroutinefunction
from threading import Barrier
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from deadletter.core.errors import Unavailable
from deadletter.core.message import Delivery
from deadletter.ports import Clock, Source

from .wreck import end_if_wrecked, guard_this_thread

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

    def run(
        delivery: Delivery,
        loop: asyncio.AbstractEventLoop,
        ended: asyncio.Future[object],
    ) -> None:
        # Errors are carried as values: some (StopIteration) do not survive being
        # set on a future.
        try:
            answer = handler(delivery)
        except BaseException as error:  # noqa: BLE001 -- handlers may raise anything
            answer = Raised(error)
        with suppress(RuntimeError):  # the event loop has closed: nobody waits
            loop.call_soon_threadsafe(_set, ended, answer)

    def run_guarded(*args: Any) -> None:
        try:
            run(*args)
        except BaseException as error:
            # Ours, not the handler's: its delivery would be held for ever.
            end_if_wrecked(error)
            raise

    @wraps(handler)
    async def on_thread(delivery: Delivery) -> object:
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[object] = loop.create_future()
        threads.submit(context.run, run_guarded, delivery, loop, ended)
        answer = await ended
        if isinstance(answer, Raised):
            raise answer.error
        return answer

    return on_thread


def _set(ended: asyncio.Future[object], answer: object) -> None:
    if not ended.done():
        ended.set_result(answer)


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """
    Start all threads of a pool now: later there may be no room for them.

    A pool that cannot start one takes the call all the same, and whoever calls would
    think that it had failed.
    """
    threads = ThreadPoolExecutor(count, name, initializer=guard_this_thread)
    together = Barrier(count + 1)
    try:
        for _ in range(count):
            threads.submit(together.wait)
    except RuntimeError as error:
        together.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        raise Unavailable(
            f"{count} threads for handlers could not be started ({error}): use fewer "
            "slots, or raise the limits of this process"
        ) from error
    together.wait()
    return threads


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
