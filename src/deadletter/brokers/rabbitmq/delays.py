"""
Delays: queues whose messages go back to their mailbox when their time is over.

A queue releases its first message first, so messages with similar delays share a queue.
A delay is never shorter than requested. Behind a longer one in the same queue it may
take up to twice as long.
"""

from typing import Any, Final

SHORTEST: Final = 250  # milliseconds; one queue for all shorter delays
LONGEST: Final = 2**31  # milliseconds, 24 days; longer delays are split


def bucket(delay: int) -> int:
    """Return the shortest delay of the queue for a delay, in milliseconds."""
    at = SHORTEST
    while at * 2 <= min(delay, LONGEST):
        at *= 2
    return at


def buckets() -> list[int]:
    """Return the shortest delays of all possible queues."""
    found = [SHORTEST]
    while found[-1] * 2 <= LONGEST:
        found.append(found[-1] * 2)
    return found


def queue_name(target: str, at: int) -> str:
    """Return the name of a queue that delays messages for `target`."""
    return f"{target}.delay.{at}"


def arguments(target: str) -> dict[str, Any]:
    """
    Return the arguments that declare such a queue.

    Its messages are dead-lettered at least once: a broker that dies meanwhile repeats it.
    """
    return {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": target,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
