"""A step of a search where reading is awaited: judging never holds the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from deadletter.core.query.budget import Meter
from deadletter.core.query.search_step import Found, Step, Wanted

P = TypeVar("P")


async def run_step(
    step: Step[P],
    read: Callable[[Wanted[P]], Awaitable[Any]],
    meter: Meter,
    *,
    is_costly: bool,
) -> Found[P]:
    """
    Run a step to its end; `read` reads what it wants.

    What a costly one has read is judged on a thread. The judging ends soon after the
    wait for it does.
    """
    given: Any = None
    try:
        while True:
            if is_costly:
                wanted = await asyncio.to_thread(_go_on, step, given)
            else:
                wanted = _go_on(step, given)
            if isinstance(wanted, Found):
                return wanted
            given = await read(wanted)
    finally:
        meter.stop()


def _go_on(step: Step[P], given: Any) -> Wanted[P] | Found[P]:
    try:
        return step.send(given)
    except StopIteration as end:
        found: Found[P] = end.value
        return found
