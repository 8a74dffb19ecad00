"""
Draining a dead place into the office: taken, kept as letters, then forgotten.

Every step is idempotent, so a crash between two steps only repeats them: what was taken and
not forgotten comes again, and is the same letter. So is the copy of a letter that the office
has: it was published after the letter was kept, and tells nothing new.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from msgspec import Struct

from deadletter.core.errors import Refused
from deadletter.core.events import Buried, HeadersIgnored, Observer
from deadletter.core.failure import Failure
from deadletter.core.letter import DeadLetter
from deadletter.core.signing import Keys
from deadletter.intake.dialects import NOBODY, Found, Trusted, has_unsigned, letter_of, origin_of
from deadletter.ports import Clock, Dice, Drain, Kept, KeyRing, LetterStore

from .availability import Availability, RuntimeContext
from .deliveries import Heartbeat
from .outcomes import bisect_rejected, report_rejected

BATCH: Final = 100
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_STEP: Final = timedelta(microseconds=1)
_WAIT: Final = 5.0  # seconds for the first of a batch: stopping takes no longer


class TakenIn(Struct, frozen=True):
    """One thing that was found, and what became of it."""

    letter: DeadLetter
    kept: Kept | None  # None: the office refused it, and it stays where it is


class KnownCopy(Kept, frozen=True):
    """The answer for a copy of a letter that the office has: no death is reported twice."""


class Intake:
    """Drains one dead place, once or for as long as it runs."""

    def __init__(
        self,
        *,
        drain: Drain,
        letters: LetterStore,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        batch: int = BATCH,
        ring: KeyRing | None = None,
        trusted: Trusted = NOBODY,
        server: str = "",
        on_taken: Callable[[Sequence[TakenIn]], None] = lambda taken: None,
    ) -> None:
        self.name = f"intake {drain.place}"
        self.heartbeat = Heartbeat(clock)
        self._drain = drain
        self._letters = letters
        self._clock = clock
        self._observe = observe
        self._batch = batch
        self._ring = ring or KeyRing(letters)
        self._trusted = trusted
        self._on_taken = on_taken
        self._server = server  # its name in the settings, or its URL without secrets
        self._availability = Availability(
            drain.place, context=RuntimeContext(clock, dice, observe), beat=self.heartbeat.beat
        )
        self._refused: list[Found] = []  # held, lest they come again at once
        self._read_until = _LONG_AGO

    def ready(self) -> str | None:
        """Return what cannot be reached at the moment; None when all can."""
        return self._availability.complaint()

    async def run(self, stop: asyncio.Event) -> None:
        """Drain until `stop` is set, waiting out whatever cannot be reached."""
        availability = self._availability
        try:
            while not stop.is_set():
                self.heartbeat.beat()
                take = partial(self._drain.take, self._batch, wait=_WAIT)
                found = await availability.retry_until_available("source", take, wait=_WAIT)
                if not found:
                    continue
                keys = await availability.retry_until_available("office", self._ring.keys)
                letters = self._read(found, keys)
                keep = partial(self._keep, letters)
                answers = await availability.retry_until_available("office", keep)
                taken, kept = self._sorted(found, letters, answers)
                await availability.retry_until_available(
                    "source", partial(self._drain.forget, kept)
                )
                self._tell(taken)
        finally:
            await self.end()

    async def once(self, limit: int) -> Sequence[TakenIn]:
        """
        Drain up to `limit` things now; nothing when the place is empty.

        What cannot be reached is an error at once: nothing was forgotten then.
        """
        found = await self._drain.take(min(limit, self._batch))
        if not found:
            return ()
        letters = self._read(found, await self._ring.keys())
        answers = await self._keep(letters)
        taken, kept = self._sorted(found, letters, answers)
        await self._drain.forget(kept)
        self._tell(taken)
        return taken

    async def look(self, limit: int) -> Sequence[DeadLetter]:
        """Return the letters that draining would make of up to `limit` things; all stay."""
        found = await self._drain.take(limit)
        await self._drain.hand_back(found)
        return self._read(found, await self._ring.keys())

    async def end(self) -> None:
        """Take no more, and leave what the office refused where it was."""
        refused, self._refused = self._refused, []
        try:
            if refused:
                await self._drain.hand_back(refused)
        finally:
            await self._drain.close()

    def _read(self, found: Sequence[Found], keys: Keys) -> list[DeadLetter]:
        # What does not know its time gets one in the order in which it lay there: by
        # that it is sent back.
        start = max(self._clock.now(), self._read_until)
        self._read_until = start + len(found) * _STEP
        return [
            letter_of(one, start + number * _STEP, keys, self._trusted, self._server)
            for number, one in enumerate(found)
        ]

    async def _keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept | Refused]:
        """Keep letters, except copies of letters that the office has."""
        copies = [one.id for one in letters if origin_of(one.message) is None]
        there = await self._letters.get(copies) if copies else ()
        latest = {one.id: one.head.dead_at for one in there}
        known = [
            origin_of(one.message) is None and latest.get(one.id, _LONG_AGO) >= one.head.dead_at
            for one in letters
        ]
        fresh = [one for one, is_known in zip(letters, known, strict=True) if not is_known]
        answers = iter(await bisect_rejected(self._letters.keep, fresh) if fresh else ())
        return [
            KnownCopy(one.id, is_new=False) if is_known else next(answers)
            for one, is_known in zip(letters, known, strict=True)
        ]

    def _tell(self, taken: Sequence[TakenIn]) -> None:
        self._on_taken(taken)
        for one in taken:
            if has_unsigned(one.letter):
                id_, place = one.letter.head.message_id, self._drain.place
                self._observe(HeadersIgnored(mailbox=place, message_id=id_, what="letter"))
            if one.kept is not None and not isinstance(one.kept, KnownCopy):
                self._observe(_buried(one.letter, one.kept))

    def _sorted(
        self,
        found: Sequence[Found],
        letters: Sequence[DeadLetter],
        answers: Sequence[Kept | Refused],
    ) -> tuple[list[TakenIn], list[Found]]:
        taken: list[TakenIn] = []
        kept: list[Found] = []
        for one, letter, answer in zip(found, letters, answers, strict=True):
            if isinstance(answer, Refused):
                report_rejected(letter, answer, self._observe)
                self._refused.append(one)
                taken.append(TakenIn(letter, None))
                continue
            kept.append(one)
            taken.append(TakenIn(letter, answer))
        return taken, kept


def _buried(letter: DeadLetter, kept: Kept) -> Buried:
    head = letter.head
    return Buried(
        mailbox=head.source,
        message_id=head.message_id,
        letter_id=kept.id,
        attempt=head.attempts,
        reason=head.reason,
        text=head.reason_text,
        failure=Failure(
            trouble=head.trouble, code=head.code, error_type=head.error_type, text=head.error_text
        ),
        is_new=kept.is_new,
        consumer=head.consumer,
    )
