"""
Burying: a letter is kept only while its delivery is still ours.

Where mailboxes and office are one engine, looking and keeping are one transaction.
Elsewhere the lease is asked for first, which leaves a gap: whoever is frozen in it
may keep the letter of a message that somebody else has by then. Settling finds
out, and closes the letter again if the message was handled.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import structs

from deadletter.core.burial import burial as letter_of
from deadletter.core.decision import Bury
from deadletter.core.dialects import fenced
from deadletter.core.errors import Refused
from deadletter.core.events import Observer
from deadletter.ports import Burial, Kept, LetterStore, Source, Undertaker

from .finished import Finished
from .keeping import all_but_refused, say_refused

T = TypeVar("T")


class Unkept(Enum):
    """Why there is no letter."""

    LOST = "lost"  # the delivery is somebody else's by now
    REFUSED = "refused"  # the office will not take it, now or later


Answer: TypeAlias = Kept | Refused | None
"""What became of one letter; None when its delivery is somebody else's by now."""

Keep: TypeAlias = Callable[[Sequence[Burial]], Awaitable[Sequence[Answer]]]


class Patience(Protocol):
    """How calls are made: once, or until they work."""

    async def patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Call what is named."""


class _AtOnce:
    async def patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()


AT_ONCE: Final[Patience] = _AtOnce()
"""For those who come again by themselves."""


def keeper(
    source: Source,
    letters: LetterStore,
    undertaker: Undertaker | None,
    *,
    lease: float,
    patience: Patience,
) -> Keep:
    """The safest way there is to keep letters of one mailbox's deliveries."""
    if undertaker is not None:
        keep = partial(all_but_refused, undertaker.bury)
        return lambda burials: patience.patiently("office", partial(keep, burials))

    async def in_turn(burials: Sequence[Burial]) -> Sequence[Answer]:
        deliveries = [burial.delivery for burial in burials]
        extend = partial(source.extend, deliveries, lease=lease)
        ours = await patience.patiently("broker", extend)
        mine = [b.letter for b, flag in zip(burials, ours, strict=True) if flag]
        keep = partial(all_but_refused, letters.keep, mine)
        kept = iter(await patience.patiently("office", keep) if mine else ())
        return [next(kept) if flag else None for flag in ours]

    return in_turn


def burial_of(
    finished: Finished, *, now: datetime, consumer: str, version: str
) -> Burial:
    """The delivery that is given up, with its letter."""
    assert isinstance(finished.decision, Bury)
    assert finished.failure is not None
    delivery = finished.held.delivery
    letter = letter_of(
        delivery,
        finished.failure,
        finished.decision,
        history=finished.history or "",
        now=now,
        consumer=consumer,
        version=version,
    )
    message = fenced(letter.message)
    if message is not letter.message:  # hardly ever
        letter = structs.replace(letter, message=message)
    return Burial(delivery, letter)


async def bury(
    keep: Keep, burials: Sequence[Burial], observe: Observer
) -> list[Kept | Unkept]:
    """Keep all letters that can be; those the office refuses are told of."""
    if not burials:
        return []
    answers = await keep(burials)
    return [
        _read(burial, answer, observe)
        for burial, answer in zip(burials, answers, strict=True)
    ]


def _read(burial: Burial, answer: Answer, observe: Observer) -> Kept | Unkept:
    if isinstance(answer, Kept):
        return answer
    if answer is None:
        return Unkept.LOST
    say_refused(burial.letter, answer, observe)
    return Unkept.REFUSED
