"""Workers as people see them: who works which mailbox, in which version, and how it does."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import cmp_to_key

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.presence import SILENT, WorkedMailbox, WorkerSeen
from deadletter.core.query.versions import compare
from deadletter.core.text import clean
from deadletter.ports import LetterStore, Presence


class WorkerLine(Struct, frozen=True, kw_only=True):
    """
    One worker process as the office last heard of it, by the clock of the office.

    A silent one has not been heard of for half a minute: it may have been killed, or cannot
    reach the office. After five minutes it is forgotten.
    """

    name: str
    host: str
    version: str
    started_at: datetime
    seen_at: datetime
    is_silent: bool
    mailboxes: tuple[WorkedMailbox, ...]


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


async def list_workers(store: LetterStore, *, only: Collection[str] = ()) -> list[WorkerLine]:
    """
    Return the workers that the office has heard of lately, by name; with `only` of these.

    Raises ConfigError for an office that does not keep presence.
    """
    if not isinstance(store, Presence):
        raise ConfigError(
            f"an office in {store.features.engine} does not know which workers run: use one in"
            " SQLite or PostgreSQL"
        )
    found = [_line(one, only) for one in await store.workers()]
    return [one for one in found if one.mailboxes or not only]


def workers_of(workers: Iterable[WorkerLine], mailbox: str) -> list[WorkerLine]:
    """Return the workers of one mailbox."""
    return [one for one in workers if any(box.mailbox == mailbox for box in one.mailboxes)]


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


def version_spread(workers: Sequence[WorkerLine]) -> str:
    """
    Return which versions run, newest first: `1.8.1 runs on 3 of 4`.

    Empty if no worker has a version. Silent workers do not count.
    """
    heard = [one for one in workers if not one.is_silent]
    versions = Counter(one.version for one in heard if one.version)
    if not versions:
        return ""
    if len(versions) == 1 and versions.total() == len(heard):
        return f"all run {clean(next(iter(versions)))}"
    newest = sorted(sorted(versions), key=cmp_to_key(_order), reverse=True)
    parts = [f"{clean(one)} runs on {versions[one]:,} of {len(heard):,}" for one in newest[:3]]
    return ", ".join(parts)


def _order(one: str, other: str) -> int:
    return compare(one, other, "", {}) or 0


def _line(seen: WorkerSeen, only: Collection[str]) -> WorkerLine:
    sign = seen.sign
    return WorkerLine(
        name=sign.name,
        host=sign.host,
        version=sign.version,
        started_at=seen.started_at,
        seen_at=seen.seen_at,
        is_silent=seen.silent_for >= SILENT,
        mailboxes=tuple(one for one in sign.mailboxes if not only or one.mailbox in only),
    )
