"""Retention: discarding dead letters when their time is over."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import structlog

from deadletter import PROFILES, State
from deadletter.core.letter import By
from deadletter.office.retention import Retention
from deadletter.runtime.deliveries import Heartbeat

from .backend import Backend
from .dead_letter import DeadLetter
from .mailbox import BackendMailbox
from .mailbox_broker import in_thread
from .mailbox_scan import scan_mailbox

FINISHED: Final = (State.CLOSED, State.REPLAYED, State.DISCARDED)
BY: Final = By("agents.retention", "its retention period is over")
EVERY: Final = 3600.0  # seconds between two runs
_BEAT: Final = 10.0  # seconds between two heartbeats
log = structlog.get_logger("agents.retention")


class RetentionLoop:
    """Applies the retention of dead-letter mailboxes and of the office, again and again."""

    name = "retention"

    def __init__(
        self, backend: Backend, *dead_letters: BackendMailbox[Any, None], every: float = EVERY
    ) -> None:
        self.heartbeat = Heartbeat(backend.clock)
        self._backend = backend
        self._dead_letters = dead_letters
        self._every = every
        self._failure: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Run at once and then regularly, until `stop` is set."""
        now = asyncio.get_running_loop().time
        due = now()
        while not stop.is_set():
            self.heartbeat.beat()
            if now() >= due:
                await in_thread(self._apply)
                due = now() + self._every
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(self._every, _BEAT))

    def ready(self) -> str | None:
        """Return why the last run failed; None if it did not."""
        return self._failure

    def _apply(self) -> None:
        try:
            letters = discard_expired(*self._dead_letters)
            finished = delete_finished(self._backend)
        except Exception as error:
            self._failure = f"retention failed: {error}"
            log.exception("Retention failed", error=str(error))
            return
        self._failure = None
        if letters or finished:
            log.info("Retention applied", discarded=letters, deleted=finished)


def discard_expired(*dead_letters: BackendMailbox[Any, None]) -> int:
    """
    Discard letters that are older than the `default_ttl` of their mailbox; return their number.

    The office keeps letters that nobody has dealt with, however old they are.
    """
    return sum(scan_mailbox(box, _is_over(box)) for box in dead_letters)


def delete_finished(backend: Backend) -> int:
    """Delete finished letters of the office past the profile's period; return their number."""
    kept_for = timedelta(seconds=PROFILES["mailbox"].retention.dead or 0)

    async def deleting() -> int:
        store = await backend.letters()
        keep = dict.fromkeys(FINISHED, kept_for)
        return (await Retention(store, backend.clock, keep=keep).run(BY)).letters

    return backend.call(deleting())


def _is_over(box: BackendMailbox[Any, None]) -> Callable[[DeadLetter[Any]], bool]:
    def is_over(letter: DeadLetter[Any]) -> bool:
        age = (box.backend.clock.now() - letter.dead_lettered_at).total_seconds()
        return 0 < box.default_ttl < age

    return is_over
