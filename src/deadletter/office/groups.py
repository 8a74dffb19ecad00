"""What broke, by cause: "412 dead letters" becomes "3 problems"."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.failure import Trouble
from deadletter.core.letter import OPEN, Group, GroupStatus
from deadletter.ports import LetterStore

MOST: Final = 1_000


class GroupLine(Struct, frozen=True, kw_only=True):
    """A group as a list shows it; `share` is its part of all open letters."""

    fingerprint: str
    source: str
    error_type: str
    text: str
    frame: str
    trouble: Trouble
    code: str
    status: GroupStatus
    first_seen: datetime
    last_seen: datetime
    open: int
    total: int
    share: float


async def list_groups(
    store: LetterStore,
    *,
    source: str | None = None,
    only_open: bool = True,
    limit: int = 100,
) -> list[GroupLine]:
    """Groups of like failures, those with most open letters first."""
    counts = await store.counts()
    everything = sum(
        states.get(state, 0)
        for name, states in counts.items()
        if source is None or name == source
        for state in OPEN
    )
    # The store answers latest first; the largest need not be among the latest.
    groups = await store.groups(source=source, only_open=only_open, limit=MOST)
    lines = [_line(group, everything) for group in groups]
    lines.sort(key=lambda line: (line.open, line.total, line.last_seen), reverse=True)
    return lines[:limit]


def _line(group: Group, everything: int) -> GroupLine:
    return GroupLine(
        fingerprint=group.fingerprint,
        source=group.source,
        error_type=group.error_type,
        text=group.text,
        frame=group.frame,
        trouble=group.trouble,
        code=group.code,
        status=group.status,
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        open=group.open,
        total=group.total,
        share=group.open / everything if everything else 0.0,
    )
