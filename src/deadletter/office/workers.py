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
