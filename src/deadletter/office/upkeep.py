"""Upkeep of an office as data: runs in the background, retention that is due, tests of alerts."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.alerts import TargetKind

from .retention import Swept
from .verify import Verified

VERIFY_STEPS: Final = ("mailboxes", "deaths", "letters and audit", "conflicts")
"""The steps of `verify`, in their order."""


class RunState(StrEnum):
    """The states of a run in the background."""

    IDLE = "idle"  # there was none since the server started
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # `problem` says why


class Run(Struct, frozen=True, kw_only=True):
    """A run in the background of one server, or the last one."""

    state: RunState = RunState.IDLE
    actor: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    step: str = ""  # what it does now
    done: int = 0  # of `total`
    total: int = 0
    problem: str = ""


class VerifyRun(Run, frozen=True, kw_only=True):
    """A run of `verify`; `done` counts its steps."""

    found: Verified | None = None


class RetentionRun(Run, frozen=True, kw_only=True):
    """A run of the retention; `done` counts the letters that were deleted."""

    swept: Swept | None = None


class RetentionDue(Struct, frozen=True, kw_only=True):
    """What the retention would delete now, and after how many days; and its last run."""

    due: int
    letters: int  # in all
    closed: float  # days
    replayed: float
    discarded: float
    ledger: float
    every: float | None  # hours between runs of the server; None: it runs none by itself
    run: RetentionRun


class AlertTest(Struct, frozen=True, kw_only=True):
    """The result of a test notice to one target."""

    kind: TargetKind
    to: str  # without passwords and paths, which are secrets of a webhook
    accepted: bool  # by the server of the target; nobody tells whether a person saw it
    text: str
