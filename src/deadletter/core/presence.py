"""
Presence: what each worker process says about itself, every few seconds.

A store keeps one row for each process and dates it by its own clock, so clocks of workers do
not matter. A process that says nothing any more is silent, and forgotten after some minutes.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from .text import each_text, shown, stored

EVERY: Final = 10.0
"""Seconds between two signs of a worker."""
SILENT: Final = 30.0
"""Seconds without a sign after which a worker is shown as silent."""
FORGOTTEN: Final = 300.0
"""Seconds without a sign after which a worker is forgotten."""
LONGEST: Final = 500
"""Characters of a reason."""


class WorkedMailbox(Struct, frozen=True, kw_only=True):
    """
    A mailbox that a process works.

    `brake` is why its brake is open, `trouble` why it cannot work at the moment; both are
    empty if all is well.
    """

    mailbox: str
    slots: int = 0  # handlers that may run at once
    in_flight: int = 0  # messages that it holds
    brake: str = ""
    brake_since: datetime | None = None  # by the clock of the worker
    trouble: str = ""


class WorkerSign(Struct, frozen=True, kw_only=True):
    """A sign of life of one worker process."""

    id: str  # of this start of the process
    name: str  # host and process id, as attempts name their worker
    host: str
    version: str = ""  # of the application
    mailboxes: tuple[WorkedMailbox, ...] = ()


class WorkerSeen(Struct, frozen=True, kw_only=True):
    """A worker as the office last heard of it; all times are by the clock of the store."""

    sign: WorkerSign
    started_at: datetime  # of its first sign
    seen_at: datetime  # of its last
    silent_for: float  # seconds since then


def encode_sign(sign: WorkerSign) -> bytes:
    """Encode a sign for a store."""
    return msgspec.json.encode(each_text(stored, msgspec.to_builtins(sign)))


def decode_sign(document: bytes | str) -> WorkerSign:
    """Decode a sign."""
    return msgspec.convert(each_text(shown, msgspec.json.decode(document)), WorkerSign)
