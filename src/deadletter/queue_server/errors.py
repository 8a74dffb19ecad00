"""Errors that tell a client to send the same request again later."""

from deadletter.core.errors import DeadLetterError


class TryAgain(DeadLetterError):
    """Nothing of the request was applied, and sending it again may help."""


def overloaded() -> TryAgain:
    """Return the error for a queue with too many waiting requests."""
    return TryAgain("queue is overloaded; try again later")


def timed_out() -> TryAgain:
    """Return the error for a request whose time was over before its turn."""
    return TryAgain("request timeout; its turn did not come, try again")


def nothing_to_lease() -> TryAgain:
    """Return the error for a lease request that waited in vain."""
    return TryAgain("request timeout; no items are in the queue, try again")


def shutting_down() -> TryAgain:
    """Return the error for requests to a server that is stopping."""
    return TryAgain("queue is shutting down; try again")
