"""The route of the workers that the office has heard of."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import get

from deadletter.core.access import Role
from deadletter.office.workers import WorkerLine
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who


@get("/workers", guards=[needs(Role.READER)])
async def get_workers(context: Here, who: Who) -> Sequence[WorkerLine]:
    """
    List the worker processes that the office has heard of lately, by name.

    Each says every ten seconds which mailboxes it works, in which version, how many messages
    it holds, and why its brake is open. `is_silent` means no sign for half a minute; after
    five minutes a worker is forgotten. An office in MongoDB does not know its workers.
    """
    return await context.office.workers(sources=who.sources)


routes: Final[list[Any]] = [get_workers]
