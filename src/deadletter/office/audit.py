"""The audit read from its end, newest first, and its anchors."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.events import Anchored, AnchorFailed, Observer
from deadletter.core.letter import AuditEntry
from deadletter.ports import LetterStore

_STEP: Final = 500  # entries read together


class Read(Protocol):
    """A function that reads the audit, such as `Office.audit`."""

    async def __call__(self, *, after: int, limit: int) -> Sequence[AuditEntry]:
        """Return up to `limit` entries with a number greater than `after`, oldest first."""


class ReadLatest(Protocol):
    """A function that reads the end of the audit, such as `Office.latest_audit`."""

    async def __call__(self, *, limit: int) -> Sequence[AuditEntry]:
        """Return up to `limit` entries, newest first."""


class AuditFilter(Struct, frozen=True, kw_only=True):
    """A filter of entries; None matches everything."""

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None


EVERY_ENTRY: Final = AuditFilter()


async def latest_entries(
    store: LetterStore, wanted: AuditFilter, *, before: int | None, limit: int
) -> list[AuditEntry]:
    """Return up to `limit` matching entries with a number below `before`, newest first."""
    found: list[AuditEntry] = []
    while (size := min(limit - len(found), _STEP)) > 0:
        page = await store.latest_audit(
            target=wanted.target,
            actor=wanted.actor,
            action=wanted.action,
            before=before,
            limit=size,
        )
        found += [entry for entry in page if wanted.since is None or entry.at >= wanted.since]
        if len(page) < size or (wanted.since is not None and page[-1].at < wanted.since):
            break
        before = page[-1].seq
    return found


async def head(read: ReadLatest) -> AuditEntry | None:
    """Return the last entry: its seal covers all entries before it."""
    found = await read(limit=1)
    return found[0] if found else None


# Anchors: the end of the audit, recorded where writers of the database cannot write.
# An anchor is one line: the number of the last entry and its seal. Whoever cuts the audit
# off before that entry, or writes it anew, is found out by it.

Note: TypeAlias = Callable[[AuditEntry], Awaitable[None]]
"""A function that records the last entry somewhere; raises `NotAnchored`."""


class NotAnchored(Exception):
    """The end of the audit could not be recorded; the text says why."""


class Anchoring:
    """
    Records the end of the audit in several places, by name, when it has moved.

    An unreachable place is reported as an event, and tried again the next time.
    """

    def __init__(self, read: ReadLatest, places: Mapping[str, Note], observe: Observer) -> None:
        self._read = read
        self._places = places
        self._observe = observe
        self._noted: dict[str, str] = {}

    async def once(self) -> None:
        """Record the end in the places that do not have it yet."""
        last = await head(self._read)
        if last is None:
            return
        for name, note in self._places.items():
            if self._noted.get(name) == anchor(last):
                continue
            try:
                await note(last)
            except NotAnchored as error:
                self._observe(AnchorFailed(mailbox="", target=name, text=str(error)))
            else:
                self._noted[name] = anchor(last)
                seq, seal = last.seq, last.hash
                self._observe(Anchored(mailbox="", target=name, seq=seq, seal=seal))


def in_file(path: Path) -> Note:
    """Return a function that records the end of the audit as a line of this file."""

    async def note(entry: AuditEntry) -> None:
        try:
            await asyncio.to_thread(append_anchor, path, anchor(entry))
        except OSError as error:
            raise NotAnchored(f"{path}: {error.strerror}") from error

    return note


def append_anchor(path: Path, line: str) -> None:
    """Append an anchor to a file in one write."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def anchor(entry: AuditEntry | None) -> str:
    """Return the line that anchors an audit which ends with this entry."""
    return f"{entry.seq} {entry.hash}" if entry else "0 -"


async def check_anchors(lines: Iterable[str], read: Read) -> Sequence[str]:
    """Return the contradictions between the audit and these anchors, one sentence each."""
    found = []
    for number, line in enumerate(filter(str.strip, lines), 1):
        seq, _, hash_ = line.strip().partition(" ")
        if not (seq.isascii() and seq.isdigit() and hash_):
            raise ConfigError(
                f"line {number} is not an anchor: expected a number and a seal, as"
                " `dlq audit head` prints them"
            )
        if seq == "0":
            continue
        entries = await read(after=int(seq) - 1, limit=1)
        if not entries or entries[0].seq != int(seq):
            found.append(f"audit entry {seq} is missing, but it was anchored")
        elif entries[0].hash != hash_:
            found.append(f"audit entry {seq} is not the one that was anchored")
    return found


# Runs: somebody who reviews 200 letters does one thing, with 200 entries.

_SOON: Final = timedelta(minutes=1)


class Run(Struct, frozen=True):
    """Entries in a row of the same act by the same person, newest first."""

    entries: tuple[AuditEntry, ...]

    @property
    def entry(self) -> AuditEntry:
        """Return the latest entry, which stands for all of them."""
        return self.entries[0]

    @property
    def targets(self) -> int:
        """Return the number of different targets."""
        return len({entry.target for entry in self.entries})


def runs_of(entries: Iterable[AuditEntry]) -> list[Run]:
    """Return entries as runs, in the same order: a pause of a minute ends a run."""
    runs: list[list[AuditEntry]] = []
    for entry in entries:
        if runs and _is_same_act(runs[-1][-1], entry):
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return [Run(tuple(run)) for run in runs]


def _is_same_act(one: AuditEntry, other: AuditEntry) -> bool:
    same = (one.actor, one.action, one.detail, one.reason)
    is_near = abs(one.at - other.at) <= _SOON
    return is_near and same == (other.actor, other.action, other.detail, other.reason)
