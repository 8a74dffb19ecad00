"""The audit read from its end: who did what, newest first."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.letter import AuditEntry

_STEP: Final = 500  # entries read together

Read: TypeAlias = Callable[[int, int], Awaitable[Sequence[AuditEntry]]]
"""Reads up to so many entries behind one, oldest first: after, limit."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which entries to list; what is None does not matter."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None

    def has(self, entry: AuditEntry) -> bool:
        """Return whether an entry is wanted."""
        return (
            self.target in {None, entry.target}
            and self.actor in {None, entry.actor}
            and self.action in {None, entry.action}
            and (self.since is None or entry.at >= self.since)
        )


async def newest(read: Read, wanted: Wanted, limit: int) -> list[AuditEntry]:
    """Up to `limit` entries that are wanted, newest first."""
    found: list[AuditEntry] = []
    end = await _last(read)
    while end > 0 and len(found) < limit:
        start = max(0, end - _STEP)
        page = [entry for entry in await read(start, end - start) if entry.seq <= end]
        found += [entry for entry in reversed(page) if wanted.has(entry)]
        is_older = wanted.since is not None and page and page[0].at < wanted.since
        end = 0 if is_older else start
    return found[:limit]


async def head(read: Read) -> AuditEntry | None:
    """The last entry: its seal covers all that were written before it."""
    last = await _last(read)
    return (await read(last - 1, 1))[0] if last else None


async def _last(read: Read) -> int:
    """The number of the last entry, found by asking where there is one behind."""
    low, high = 0, 1
    while await read(high - 1, 1):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if await read(middle - 1, 1):
            low = middle
        else:
            high = middle
    return low
