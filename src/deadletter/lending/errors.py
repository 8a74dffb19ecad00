"""What a client is told when nothing is wrong with its request."""

from deadletter.core.errors import DeadLetterError


class TryAgain(DeadLetterError):
    """Not now: nothing of the request was applied, and asking again may help."""


def overloaded() -> TryAgain:
    """More requests wait than anybody should queue up behind."""
    return TryAgain("queue is overloaded; try again later")


def timed_out() -> TryAgain:
    """The time of a request was over before its turn came."""
    return TryAgain("request timeout; its turn did not come, try again")


def nothing_to_lease() -> TryAgain:
    """A lease request has waited as long as it wanted to."""
    return TryAgain("request timeout; no items are in the queue, try again")


def shutting_down() -> TryAgain:
    """This server is about to end."""
    return TryAgain("queue is shutting down; try again")
