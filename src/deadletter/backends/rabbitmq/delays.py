"""
Delays: queues whose messages go back to their mailbox when their time is over.

A queue lets go of its first message first, so messages that wait about equally long
share one: a delay is never shorter than asked for, and in the worst case, behind
one that waits longer in the same queue, twice as long.
"""

from typing import Any, Final

SHORTEST: Final = 250  # milliseconds; below it one queue serves all
LONGEST: Final = 2**31  # milliseconds, 24 days; beyond it a delay is taken in turns


def bucket(delay: int) -> int:
    """The queue for a delay in milliseconds, by the shortest delay it takes."""
    at = SHORTEST
    while at * 2 <= min(delay, LONGEST):
        at *= 2
    return at


def buckets() -> list[int]:
    """All there may be."""
    found = [SHORTEST]
    while found[-1] * 2 <= LONGEST:
        found.append(found[-1] * 2)
    return found


def queue_name(target: str, at: int) -> str:
    """The queue that delays messages for `target`."""
    return f"{target}.delay.{at}"


def arguments(target: str) -> dict[str, Any]:
    """
    How such a queue is declared.

    Its messages are handed on at least once: a broker that dies in between hands
    them on again.
    """
    return {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": target,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
