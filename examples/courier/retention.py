"""
Retention: dead events, and their copies in the dead-letter queue, live for DLQ_TTL_DAYS.

MongoDB deletes finished keys of the ledger by itself, by an index on a date. Letters are deleted
here, so that every deletion is counted and recorded in the audit.
"""

from datetime import datetime, timedelta
from typing import Final

from deadletter import Profile, State
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.office.retention import Retention
from deadletter.ports import Acked, Broker, Clock, Engine, Ledger, LetterStore, Released
from deadletter.ports.broker import Timed

from .settings import DLQ, Settings

FINISHED: Final = (State.CLOSED, State.REPLAYED, State.DISCARDED)
_LEASE: Final = 30.0  # seconds in which one copy is looked at
_CLOCKS_AGREE: Final = timedelta(minutes=1)


def time_to_live(profile: Profile) -> timedelta:
    """Return how long dead events are kept, counted from their death."""
    dead = profile.retention.dead
    assert dead is not None  # the profile has one
    return timedelta(seconds=dead)


def letter_retention(
    settings: Settings,
    profile: Profile,
    store: LetterStore,
    clock: Clock,
    ledger: Ledger | None = None,
) -> Retention:
    """
    Return the retention of letters.

    Letters that nobody has reviewed expire like the others, unless DLQ_KEEP_UNREVIEWED is set.
    With a ledger, keys whose worker died long ago are deleted as well.
    """
    unreviewed = profile.retention.unreviewed
    keeps = settings.dlq_keep_unreviewed or unreviewed is None
    return Retention(
        store,
        clock,
        keep=dict.fromkeys(FINISHED, time_to_live(profile)),
        unreviewed=None if keeps else timedelta(seconds=unreviewed or 0),
        ledger=ledger,
    )


class Cleaning:
    """Deletes what is past its time: letters, abandoned keys, copies."""

    def __init__(
        self, engine: Engine, store: LetterStore, settings: Settings, profile: Profile, clock: Clock
    ) -> None:
        self._engine = engine
        self._letters = letter_retention(settings, profile, store, clock, engine.ledger)
        self._ttl = time_to_live(profile)
        self._clock = clock

    async def run(self, by: By) -> None:
        """Delete everything past its time. Raises Conflict if the clock may be wrong."""
        await self._check_clock()
        # A burst of events that died on one day is due on one day as well.
        await self._letters.run(by, force=True)
        await delete_copies(self._engine.broker, before=self._clock.now() - self._ttl)

    async def _check_clock(self) -> None:
        broker = self._engine.broker
        if not isinstance(broker, Timed):
            return
        there, here = await broker.time(), self._clock.now()
        if abs(there - here) > _CLOCKS_AGREE:
            raise Conflict(
                f"the clock of this machine says {here:%Y-%m-%d %H:%M} and that of the queue's"
                f" server {there:%Y-%m-%d %H:%M}: nothing is deleted until they agree"
            )


async def delete_copies(broker: Broker, *, before: datetime) -> int:
    """Delete copies of letters that died before a time; return their number."""
    queues = await broker.queues()
    oldest = next((one.oldest_at for one in queues if one.options.name == DLQ), None)
    if oldest is None or oldest >= before:
        return 0
    source = broker.source(DLQ)
    deleted = 0
    while found := await source.receive(limit=1, wait=0, lease=_LEASE):
        (copy,) = found
        if copy.message.sent_at >= before:
            await source.settle([Released(copy, charged=False)])
            break
        await source.settle([Acked(copy)])
        deleted += 1
    return deleted
