"""Versions of the application that run now, as the workers of a mailbox say."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from deadletter.ports import LetterStore, Presence

from .workers import WorkerLine, list_workers, workers_of


class RunningVersion(Struct, frozen=True, kw_only=True):
    """
    A version that workers of a mailbox run now.

    `since` is when the first of these workers started. `has_fix` says that the version is the
    one that is believed to have a fix, or newer.
    """

    version: str  # empty: these workers name none
    workers: int
    since: datetime
    hosts: tuple[str, ...] = ()
    has_fix: bool = False


async def live_workers(store: LetterStore, mailbox: str) -> list[WorkerLine] | None:
    """Return the workers of a mailbox that were heard of lately; None if that is not kept."""
    if not isinstance(store, Presence):
        return None
    found = workers_of(await list_workers(store, only=(mailbox,)), mailbox)
    return [one for one in found if not one.is_silent]


def running_versions(workers: Sequence[WorkerLine]) -> list[RunningVersion]:
    """Return the versions that these workers run, the one that most of them run first."""
    by_version: dict[str, list[WorkerLine]] = {}
    for one in workers:
        by_version.setdefault(one.version, []).append(one)
    lines = [
        RunningVersion(
            version=version,
            workers=len(them),
            since=min(one.started_at for one in them),
            hosts=tuple(sorted({one.host for one in them})),
        )
        for version, them in by_version.items()
    ]
    return sorted(lines, key=lambda one: (-one.workers, one.version))
