"""Deaths over time behind a server, with the marks that explain them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from deadletter.core.deaths import By
from deadletter.core.query.fields import instant
from deadletter.office.deaths import NAMES, DeathChart, Mark

from .connection import API, Connection


class Deaths:
    """Deaths over time, and what happened meanwhile."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def chart(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        by: By = By.NONE,
        source: str | None = None,
        group: str | None = None,
        most: int = NAMES,
    ) -> DeathChart:
        """Return deaths over time, by default of the last 24 hours."""
        return await self._connection.get(
            f"{API}/deaths",
            DeathChart,
            since=_written(since),
            until=_written(until),
            step=None if step is None else f"{step.total_seconds():.0f}s",
            by=by.value,
            source=source,
            group=group,
            most=most,
        )

    async def marks(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> Sequence[Mark]:
        """Return versions first seen, outages and replays of a span, earliest first."""
        return await self._connection.get(
            f"{API}/marks", tuple[Mark, ...], since=_written(since), until=_written(until)
        )


def _written(at: datetime | None) -> str | None:
    return None if at is None else instant(at)
