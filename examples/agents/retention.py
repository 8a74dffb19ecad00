"""Retention: discarding dead letters when their time is over."""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from deadletter import PROFILES, Delivery, State
from deadletter.core.burial import from_message
from deadletter.core.letter import By
from deadletter.core.signing import Keys
from deadletter.office.retention import Retention
from deadletter.ports import Acked, Fate, Released
from deadletter.runtime.deliveries import Heartbeat

from .backend import Backend
from .mailbox import BackendMailbox
from .mailbox_broker import in_thread

FINISHED: Final = (State.CLOSED, State.REPLAYED, State.DISCARDED)
BY: Final = By("agents.retention", "its retention period is over")
EVERY: Final = 3600.0  # seconds between two runs
BATCH: Final = 100  # letters at once
LEASE: Final = 60.0  # seconds to look at a batch
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
    return sum(box.backend.call(_discard_from(box)) for box in dead_letters)


def delete_finished(backend: Backend) -> int:
    """Delete finished letters of the office past the profile's period; return their number."""
    kept_for = timedelta(seconds=PROFILES["mailbox"].retention.dead or 0)

    async def deleting() -> int:
        store = await backend.letters()
        keep = dict.fromkeys(FINISHED, kept_for)
        return (await Retention(store, backend.clock, keep=keep).run(BY)).letters

    return backend.call(deleting())


async def _discard_from(box: BackendMailbox[Any, None]) -> int:
    if not box.default_ttl:
        return 0
    backend = box.backend
    source, keys = (await backend.broker()).source(box.name), await backend.keys()
    discarded, left = 0, list[Delivery]()
    try:
        # The oldest come first: the first batch without an expired letter ends the run.
        while found := await source.receive(limit=BATCH, wait=0, lease=LEASE):
            now = backend.clock.now()
            over = [one for one in found if _age(one, keys, now) > box.default_ttl]
            left += [one for one in found if one not in over]
            discarded += sum(await source.settle([Acked(one, Fate.PURGED) for one in over]))
            if not over:
                break
    finally:
        # Looking at a letter is not a delivery: it is not charged.
        await source.settle([Released(one, charged=False) for one in left])
    return discarded


def _age(delivery: Delivery, keys: Keys, now: datetime) -> float:
    kept = from_message(delivery.message, delivery.mailbox, keys, now)
    return (now - kept.head.dead_at).total_seconds()
