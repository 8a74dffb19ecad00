"""
One intake of a server: it looks at a dead queue, takes from it, or follows it.

It does one of these at a time, and ends only by a stop: what cannot be reached is tried again,
and what dies of an error starts again, later each time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final

from deadletter.core.errors import BackendError, Conflict, DeadLetterError
from deadletter.core.events import BackInReach, Observer, OutOfReach
from deadletter.core.failure.clues import plain_name, text_of
from deadletter.core.intakes import IntakeState, IntakeStatus, Sighting
from deadletter.core.letter import By, DeadLetter
from deadletter.core.redact import redact
from deadletter.core.text import many
from deadletter.intake.dialects import Trusted, origin_of
from deadletter.ports import Clock, Dice, KeyRing, LetterStore
from deadletter.runtime.drain_loop import BATCH, Intake, TakenIn
from deadletter.runtime.loop_group import AGAIN, KeptAlive
from deadletter.settings import IntakePlace

from .foreign import opened_foreign, server_label

LOOK: Final = 10
"""Messages that a look shows."""
_LOOK_AGAIN: Final = 30.0  # seconds between two counts while following
_PATIENCE: Final = 10.0  # seconds for a look, and for a count
_ENDING: Final = 15.0  # seconds until what does not stop is cancelled
_TEXT: Final = 300


class PlaceIntake:
    """The intake of one place."""

    def __init__(
        self,
        place: IntakePlace,
        url: str,
        *,
        letters: LetterStore,
        ring: KeyRing,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._place = place
        self._url = url
        self._address = server_label(url)
        self._letters = letters
        self._ring = ring
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._on_change = on_change
        self._state = IntakeState.IDLE
        self._since: datetime | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stop = asyncio.Event()
        self._alive: KeptAlive | None = None
        self._running: Intake | None = None
        self._waiting: int | None = None
        self._looked_at: datetime | None = None
        self._taken = self._new = self._refused = 0
        self._last_taken_at: datetime | None = None
        self._dialect = ""
        self._trouble = ""
        self._trouble_since: datetime | None = None
        self._target: int | None = None
        self._away = ""  # why the server cannot be reached, while following
        self._away_since = 0.0
        self._what = f"intake {place.name}"

    @property
    def name(self) -> str:
        """Return its name in the settings."""
        return self._place.name

    def status(self) -> IntakeStatus:
        """Return how it does, without asking anybody."""
        trouble = self._current_trouble()
        return IntakeStatus(
            name=self.name,
            server=self._place.server,
            address=self._address,
            place=self._place.place,
            state=self._state,
            since=self._since,
            waiting=self._waiting,
            looked_at=self._looked_at,
            taken=self._taken,
            new=self._new,
            refused=self._refused,
            last_taken_at=self._last_taken_at,
            dialect=self._dialect,
            trouble=trouble,
            trouble_since=self._trouble_since if trouble else None,
            target=self._target,
        )

    async def look(self, limit: int = LOOK) -> Sequence[Sighting]:
        """
        Return the first messages as the letters that they would become; all stay.

        Raises Conflict while something else is under way.
        """
        self._begin(IntakeState.LOOKING)
        try:
            async with asyncio.timeout(_PATIENCE), self._opened() as intake:
                found = await intake.look(limit)
        except Exception as error:
            raise self._failed(error) from error
        finally:
            self._end()
        self._set_trouble("")
        if found:
            self._dialect = _dialect(found[0])
        return [Sighting(head=one.head, dialect=_dialect(one)) for one in found]

    def take(self, limit: int | None, by: By) -> asyncio.Task[None]:
        """
        Start taking in up to `limit` messages, or all that are there; return the work.

        Raises Conflict while something else is under way.
        """
        self._begin(IntakeState.TAKING)
        self._target = limit
        task = asyncio.create_task(self._take(limit, by))
        self._task = task
        return task

    async def follow(self, by: By | None) -> None:
        """Take in what arrives from now on. Raises Conflict while something is under way."""
        self._begin(IntakeState.FOLLOWING)
        if by is not None:
            try:
                await self._record(by, "followed from now on")
            except BaseException:
                self._end()
                raise
        self._alive = KeptAlive(self._what, self._follow, clock=self._clock, observe=self._observe)
        self._task = asyncio.create_task(self._alive.run(self._stop))
        self._task.add_done_callback(lambda _: self._end())

    async def stop(self, by: By | None) -> None:
        """Stop what is under way; what was taken and not kept stays in the place."""
        task = self._task
        if self._state is IntakeState.IDLE or task is None:
            raise Conflict(f"intake {self.name} does nothing at the moment")
        if by is not None:
            await self._record(by, f"stopped {self._state}")
        self._stop.set()
        await asyncio.wait({task}, timeout=_ENDING)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def close(self) -> None:
        """Stop, whatever it does."""
        if self._state is not IntakeState.IDLE and self._task is not None:
            await self.stop(None)

    async def _take(self, limit: int | None, by: By) -> None:
        before = self._taken
        try:
            async with self._opened() as intake:
                left = limit
                while not self._stop.is_set() and (left is None or left > 0):
                    taken = await intake.once(BATCH if left is None else min(left, BATCH))
                    if not taken:
                        break
                    left = None if left is None else left - len(taken)
            self._set_trouble("")
        except Exception as error:  # noqa: BLE001 -- told in the status, whatever it is
            self._failed(error)
        finally:
            count = self._taken - before
            self._end()
            if count:
                with suppress(DeadLetterError):  # the letters are kept all the same
                    await self._record(by, many(count, "letter"))

    async def _follow(self, stop: asyncio.Event) -> None:
        """Take in what arrives; wait for a server that cannot be reached."""
        tries = 0
        while not stop.is_set():
            try:
                await self._take_what_arrives(stop)
            except BackendError as error:
                tries = tries + 1 if self._away else 1
                delay = AGAIN.delay(tries, 0.0)
                if tries == 1:
                    self._away_since = self._clock.monotonic()
                    self._observe(
                        OutOfReach(mailbox="*", what=self._what, text=str(error), tries=1)
                    )
                self._away = f"{error}; the next try is in {delay:.0f} s"
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), delay)
        self._away = ""

    async def _take_what_arrives(self, stop: asyncio.Event) -> None:
        async with self._opened() as intake:
            if self._away:
                self._away = ""
                seconds = self._clock.monotonic() - self._away_since
                self._observe(BackInReach(mailbox="*", what=self._what, seconds=seconds))
            self._running = intake
            counting = asyncio.create_task(self._keep_counting())
            try:
                await intake.run(stop)
            finally:
                self._running = None
                counting.cancel()

    async def _keep_counting(self) -> None:
        """Count what waits, on a connection of its own: the other one is taking."""
        while True:
            with suppress(Exception):  # the loop beside it says what is wrong
                async with (
                    asyncio.timeout(_PATIENCE),
                    opened_foreign(self._url, clock=self._clock) as foreign,
                ):
                    drain = foreign.drain(self._place.place)
                    try:
                        await self._count(drain.depth)
                    finally:
                        await drain.close()
            await asyncio.sleep(_LOOK_AGAIN)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Intake]:
        async with opened_foreign(self._url, clock=self._clock) as foreign:
            drain = foreign.drain(self._place.place)
            intake = Intake(
                drain=drain,
                letters=self._letters,
                clock=self._clock,
                dice=self._dice,
                observe=self._observe,
                ring=self._ring,
                trusted=Trusted(self._place.trusted),
                server=self._place.server,
                on_taken=self._note,
            )
            try:
                await self._count(drain.depth)
                yield intake
                if self._state is not IntakeState.FOLLOWING:
                    await self._count(drain.depth)
            finally:
                await intake.end()

    async def _count(self, depth: Callable[[], Any]) -> None:
        self._waiting = await depth()
        self._looked_at = self._clock.now()
        self._on_change()

    def _note(self, taken: Sequence[TakenIn]) -> None:
        kept = [one for one in taken if one.kept is not None]
        self._refused += len(taken) - len(kept)
        self._taken += len(kept)
        self._new += sum(one.kept is not None and one.kept.is_new for one in kept)
        if kept:
            self._last_taken_at = self._clock.now()
            self._dialect = _dialect(kept[-1].letter)
        if self._waiting is not None:
            self._waiting = max(self._waiting - len(kept), 0)
        self._on_change()

    def _begin(self, state: IntakeState) -> None:
        if self._state is not IntakeState.IDLE:
            raise Conflict(f"intake {self.name} is {self._state} already: stop it first")
        self._state, self._since = state, self._clock.now()
        self._stop = asyncio.Event()

    def _end(self) -> None:
        self._state, self._since = IntakeState.IDLE, self._clock.now()
        self._task = self._alive = self._target = None
        self._on_change()

    def _failed(self, error: Exception) -> DeadLetterError:
        """Keep what went wrong, and return it as an error that a person can read."""
        if isinstance(error, TimeoutError):
            error = Conflict(f"{self._address} did not answer within {_PATIENCE:g} s")
        text = str(error) if isinstance(error, DeadLetterError) else _described(error)
        self._set_trouble(text)
        return error if isinstance(error, DeadLetterError) else Conflict(redact(text))

    def _set_trouble(self, text: str) -> None:
        text = redact(text)[:_TEXT]
        if text and text != self._trouble:
            self._trouble_since = self._clock.now()
        self._trouble = text

    def _current_trouble(self) -> str:
        if self._state is IntakeState.FOLLOWING:
            told = self._alive.trouble if self._alive is not None else None
            told = (
                told or self._away or (self._running.ready() if self._running is not None else None)
            )
            self._set_trouble(told or "")
        return self._trouble

    async def _record(self, by: By, detail: str) -> None:
        await self._letters.record("drain", self._place.place, by, detail)


def _described(error: Exception) -> str:
    return f"{plain_name(type(error))}: {text_of(error, _TEXT)}"


def _dialect(letter: DeadLetter) -> str:
    origin = origin_of(letter.message)
    return (origin.dialect if origin is not None else "deadletter") or "unknown"
