"""
Looks at the broker for pages: shared, at most one a second, and never waited for long.

Some brokers take seconds to count. A page shows what else it knows, and its part asks again.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from litestar import Request

from deadletter.core.errors import DeadLetterError
from deadletter.office.office import Mailboxes
from deadletter.ports import Clock, QueueInfo

AT_ONCE: Final = 0.3
"""Seconds that a page waits; its part then waits for longer."""
PATIENCE: Final = 2.0
"""Seconds that a part waits."""
_FRESH: Final = 1.0  # seconds that a look is good for
_KEY: Final = "mailbox_looks"


class BrokerSilent(DeadLetterError):
    """The broker did not answer in time."""


class BrokerLooks:
    """The latest look at the mailboxes of one server."""

    def __init__(self, mailboxes: Mailboxes, clock: Clock) -> None:
        self._mailboxes = mailboxes
        self._clock = clock
        self._task: asyncio.Task[Sequence[QueueInfo]] | None = None
        self._begun = 0.0

    async def look(self, patience: float, *, fresh: bool = False) -> Sequence[QueueInfo]:
        """
        Return all mailboxes, as they were a second ago at most; `fresh` looks anew.

        Raises BrokerSilent if there is no answer in time. Who asks meanwhile waits for the
        same answer: a slow broker is asked once.
        """
        now = self._clock.monotonic()
        is_old = now - self._begun >= _FRESH or fresh
        task = self._task
        if task is None or (task.done() and is_old):
            self._begun = now
            task = self._task = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait({task}, timeout=patience)
        if not done:
            raise BrokerSilent(f"the broker did not answer within {patience:g} s")
        return task.result()  # somebody may have called `forget` meanwhile

    def forget(self) -> None:
        """Look anew the next time: something was changed."""
        self._task = None

    async def _ask(self) -> Sequence[QueueInfo]:
        return await self._mailboxes.list()


def looks_of(request: Request[Any, Any, Any]) -> BrokerLooks:
    """Return the looks of this server, created with the first page."""
    state = request.app.state
    if _KEY not in state:
        context = state.context
        state[_KEY] = BrokerLooks(context.office.mailboxes, context.clock)
    found: BrokerLooks = state[_KEY]
    return found
