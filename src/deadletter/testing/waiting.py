"""Waiting for something that will come true, with a deadline instead of a hope."""

import asyncio
import inspect
from collections.abc import Callable

_TICK = 0.005


async def eventually(condition: Callable[[], object], *, within: float = 5.0) -> None:
    """
    Wait until `condition` is true, asking again and again.

    It may be a coroutine function. After `within` seconds an AssertionError says
    what it was, and what it answered last.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if loop.time() >= deadline:
            raise AssertionError(
                f"not within {within} seconds: {condition!r} still says {answer!r}"
            )
        await asyncio.sleep(_TICK)
