"""What can run in a LoopGroup: workers, DLQ consumers, the sweep."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Protocol, runtime_checkable

from .heartbeat import Heartbeat


class Loop(Protocol):
    """Something that goes on until it is told to stop."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def heartbeat(self) -> Heartbeat:
        """Beaten at least once a turn."""

    async def run(self, stop: asyncio.Event) -> None:
        """
        Go on until `stop` is set and everything held is settled or given up.

        Ordinary trouble does not end it. Cancelled, it hands back at once what it
        can, and goes.
        """

    def ready(self) -> str | None:
        """None when all is well, otherwise a sentence that says what is not."""


@runtime_checkable
class Noting(Protocol):
    """A loop that has something to say although it is ready."""

    def note(self) -> str | None:
        """Return a sentence for people, or None."""


def was_cancelled() -> bool:
    """
    Whether the running task has been cancelled from outside.

    A CancelledError without that comes out of somebody's own code, and is an
    error like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def beside(
    work: Coroutine[Any, Any, None], helpers: Collection[asyncio.Task[None]]
) -> None:
    """
    Do the work as long as its helpers live; raise what any of them dies of.

    Without one of them it would look well and get nothing done.
    """
    working = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait(
            {working, *helpers}, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
    if working not in done:
        done.pop().result()
        raise RuntimeError("a helper of this loop ended without having been asked to")
    working.result()
