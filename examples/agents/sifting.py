"""Going through a whole dead-letter mailbox, ten at a time."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from .letters import DeadLetter
from .message import Mailbox, Message

T = TypeVar("T")
Take: TypeAlias = Callable[[DeadLetter[Any]], bool]

BATCH: Final = 10
VISIBILITY: Final = 60


def sift(dlq: Mailbox[DeadLetter[T], None], take: Take) -> int:
    """
    Take out what `take` says, and say how many that were; the rest stays.

    What stays is kept out of sight meanwhile, so that it hides nothing, and handed
    back in the end, at once.
    """
    taken, left, seen = 0, list[Message[Any, Any]](), set[str]()
    try:
        while batch := _unseen(dlq, seen):
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
    """The next ones; none when all that comes has been looked at before."""
    batch = dlq.receive(max_messages=BATCH, visibility_timeout=VISIBILITY)
    fresh = [message for message in batch if message.id not in seen]
    for message in batch:
        if message.id in seen:  # so many that its visibility is over
            message.nack(visibility_timeout=0)
        seen.add(message.id)
    return fresh
