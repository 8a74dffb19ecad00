"""One message handed to one handler, with nothing around it."""

import asyncio
from collections.abc import Callable
from typing import Any

from deadletter.core.message import Delivery
from deadletter.ports import Clock

from .context import Context
from .handlers import is_async
from .held import Held
from .typed import typed


async def handed(function: Callable[..., Any], delivery: Delivery, clock: Clock) -> Any:
    """What a handler makes of a delivery; what it raises is raised."""
    handler = typed(function)
    Context(Held(delivery, clock.monotonic()), clock).enter()
    if is_async(function):
        return await handler(delivery)
    return await asyncio.to_thread(handler, delivery)
