"""Keeping letters, whatever the office thinks of one of them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from deadletter.core.errors import Refused
from deadletter.core.events import Observer, OutOfReach
from deadletter.core.letter import DeadLetter

T = TypeVar("T")
K = TypeVar("K")


async def all_but_refused(
    call: Callable[[Sequence[T]], Awaitable[Sequence[K]]], batch: Sequence[T]
) -> Sequence[K | Refused]:
    """
    Call with a batch, and give for each the answer or the refusal.

    One that is refused must not hold up the others, so a refused batch is tried
    in halves. `call` does all of a batch or nothing, or does not mind repeating.
    """
    try:
        return await call(batch)
    except Refused as error:
        if len(batch) <= 1:
            return [error] * len(batch)
    half = len(batch) // 2
    return [
        *await all_but_refused(call, batch[:half]),
        *await all_but_refused(call, batch[half:]),
    ]


def say_refused(letter: DeadLetter, error: Refused, observe: Observer) -> None:
    """Tell of a letter that the office does not take: its message stays."""
    observe(
        OutOfReach(
            mailbox=letter.head.source,
            what=f"letter {letter.id}",
            text=str(error),
            tries=1,
        )
    )
