"""Numbers: what is where, and how fast it comes."""

from typing import Any, Final

from litestar import get

from deadletter.core.access import Role
from deadletter.office.stats import Stats, collect
from deadletter.web.auth.guards import needs
from deadletter.web.given import Here, Who


@get("/stats", guards=[needs(Role.READER)])
async def get_stats(place: Here, who: Who) -> Stats:
    """Mailboxes, letters by state and source, and arrivals of late."""
    return await collect(
        place.engine.broker, place.store, place.clock, only=who.sources
    )


routes: Final[list[Any]] = [get_stats]
