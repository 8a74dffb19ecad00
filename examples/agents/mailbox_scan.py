"""Looking through a whole dead-letter mailbox, ten letters at a time."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from .dead_letter import DeadLetter
from .message import Mailbox, Message

T = TypeVar("T")
Take: TypeAlias = Callable[[DeadLetter[Any]], bool]

BATCH: Final = 10
VISIBILITY: Final = 60


def scan_mailbox(
    dlq: Mailbox[DeadLetter[T], None], take: Take, *, batches: int | None = None
) -> int:
    """
    Remove the letters for which `take` returns True; return their number.

    Looks at this number of batches, or at the whole mailbox. The other letters stay out of
    sight until the end, so that they do not hide those behind them, and are then returned
    with no delay.
    """
    taken, left, seen = 0, list[Message[Any, Any]](), set[str]()
    try:
        while batches != 0 and (batch := _unseen(dlq, seen)):
            batches = None if batches is None else batches - 1
            left += batch
            for message in batch:
                if take(message.body):
                    left.remove(message)
                    message.acknowledge()
                    taken += 1
    finally:
        for message in left:
            message.nack(visibility_timeout=0)
    return taken


def _unseen(dlq: Mailbox[DeadLetter[T], None], seen: set[str]) -> Sequence[Message[Any, Any]]:
    """Receive the next letters; nothing if all of them have been seen before."""
    batch = dlq.receive(max_messages=BATCH, visibility_timeout=VISIBILITY)
    fresh = [message for message in batch if message.id not in seen]
    for message in batch:
        if message.id in seen:  # the scan takes longer than its visibility timeout
            message.nack(visibility_timeout=0)
        seen.add(message.id)
    return fresh
