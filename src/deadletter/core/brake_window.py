"""
Windows: when a brake was open, why, and what it held meanwhile.

Each worker writes its own. Those of one cause that overlap, or follow each other
within minutes, are shown to people as one.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .brake import RELEASE, BrakeKind
from .escaping import each_text, shown, stored

SAMPLE: Final = 20  # ids of held messages that a window names
KEPT: Final = 10_000  # windows an office keeps; the oldest go first
SILENCE: Final = timedelta(minutes=3)  # without news, its worker is gone
GAP: Final = timedelta(minutes=5)  # between windows that are shown as one


class WindowState(StrEnum):
    """How a window stands."""

    OPEN = "open"
    CLOSED = "closed"
    SILENT = "silent"  # never closed, and its worker gives no news any more


class Release(Struct, frozen=True):
    """A person's word to go on: messages are judged by their policy again."""

    actor: str
    reason: str
    at: datetime


class BrakeWindow(Struct, frozen=True, kw_only=True):
    """One time that a brake was open."""

    id: str
    mailbox: str
    kind: BrakeKind
    cause: str
    version: str  # of the application that ran then
    text: str  # the evidence, as a sentence
    opened_at: datetime
    seen_at: datetime  # the latest news of it
    closed_at: datetime | None = None
    ending: str = ""  # why it closed
    held: int = 0  # messages that were given back, uncharged and unburied
    attempts: int = 0  # that were not charged
    message_ids: tuple[str, ...] = ()  # the first few of those held
    workers: int = 1
    release: Release | None = None

    @property
    def until(self) -> datetime:
        """When it ended, or was last heard of."""
        return self.closed_at or self.seen_at

    def state(self, now: datetime) -> WindowState:
        """How it stands now."""
        if self.closed_at is not None:
            return WindowState.CLOSED
        is_silent = now - self.seen_at > SILENCE
        return WindowState.SILENT if is_silent else WindowState.OPEN


def is_released(
    windows: Iterable[BrakeWindow], kind: BrakeKind, cause: str, now: datetime
) -> bool:
    """Whether somebody let this cause pass within the last day."""
    since = now - timedelta(seconds=RELEASE)
    return any(
        one.release is not None
        and one.release.at > since
        and one.kind is kind
        and (kind is BrakeKind.OUTAGE or one.cause == cause)
        for one in windows
    )


def merged(windows: Iterable[BrakeWindow]) -> Sequence[BrakeWindow]:
    """Windows as people see them, latest first: one for each time and cause."""
    shown: dict[tuple[str, BrakeKind, str], list[BrakeWindow]] = {}
    for one in sorted(windows, key=lambda window: (window.opened_at, window.id)):
        same = shown.setdefault((one.mailbox, one.kind, one.cause), [])
        if same and one.opened_at - same[-1].until <= GAP:
            same[-1] = _joined(same[-1], one)
        else:
            same.append(one)
    found = [one for same in shown.values() for one in same]
    return sorted(found, key=lambda window: (window.opened_at, window.id), reverse=True)


def _joined(first: BrakeWindow, second: BrakeWindow) -> BrakeWindow:
    is_over = first.closed_at is not None and second.closed_at is not None
    latest = second if second.until >= first.until else first
    return replace(
        first,
        seen_at=max(first.seen_at, second.seen_at),
        closed_at=latest.closed_at if is_over else None,
        ending=latest.ending if is_over else "",
        held=first.held + second.held,
        attempts=first.attempts + second.attempts,
        message_ids=(*first.message_ids, *second.message_ids)[:SAMPLE],
        workers=first.workers + second.workers,
        release=second.release or first.release,
    )


def encode(window: BrakeWindow) -> bytes:
    """A window as stores keep it, without its release: that is another's to write."""
    plain = msgspec.to_builtins(replace(window, release=None))
    return msgspec.json.encode(each_text(stored, plain))


def decode(document: bytes, release: bytes | None) -> BrakeWindow:
    """A window as it was, with its release."""
    plain = each_text(shown, msgspec.json.decode(document))
    window = msgspec.convert(plain, BrakeWindow)
    return replace(window, release=decode_release(release) if release else None)


def encode_release(release: Release) -> bytes:
    """A release as stores keep it."""
    return msgspec.json.encode(each_text(stored, msgspec.to_builtins(release)))


def decode_release(document: bytes) -> Release:
    """A release as it was."""
    return msgspec.convert(each_text(shown, msgspec.json.decode(document)), Release)
