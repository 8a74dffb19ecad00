"""
What has died since the last look, by group.

A group counts every death for good, so what arrived shows even where a consumer
empties the dead letters as fast as they come, and the depth is always zero.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.letter import Group

KEPT: Final = 10_000  # groups whose numbers are remembered


class Arrived(Struct, frozen=True):
    """Deaths of one group since the last look."""

    group: Group
    count: int
    is_new: bool  # the group itself was first seen since


class Arrivals:
    """
    Tells what arrived between two looks at the latest groups.

    Of a group that is not known, all deaths have arrived if it was first seen since
    `since`; else what it has now is where counting begins.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._totals: dict[str, int] = {}

    def look(self, groups: Sequence[Group]) -> list[Arrived]:
        """What arrived since the last look."""
        arrived = []
        for group in groups:
            # Out and in again: those seen last are forgotten last.
            before = self._totals.pop(group.fingerprint, None)
            self._totals[group.fingerprint] = group.total
            is_new = before is None and group.first_seen >= self._since
            if before is None and not is_new:
                continue
            if (count := group.total - (before or 0)) > 0:
                arrived.append(Arrived(group, count, is_new))
        for name in list(self._totals)[: max(0, len(self._totals) - KEPT)]:
            del self._totals[name]
        return arrived
