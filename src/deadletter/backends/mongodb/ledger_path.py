"""
The path of a key through its states, with the times: for people, in its document.

    received, processing, failed, processing, processed

A replay is received again. What is dead-lettered has failed first, whether its
attempts were used up or its first one was hopeless.
"""

from typing import Any, Final

from deadletter.ports.ledger import LedgerState

from .schema import Document

_RECEIVED: Final = "received"  # never where a key stands: whoever sees it begins
_LONGEST: Final = -50  # the latest steps


def begun(now: Any, generation: int) -> Document:
    """The path of a key that is taken up: for the first time, again, or replayed."""
    received = {"$cond": [_is_new(generation), [_step(_RECEIVED, now)], []]}
    return _on(received, [_step(LedgerState.PROCESSING.value, now)])


def ended(now: Any, state: str) -> Document:
    """The path of a key that is finished; told again, it is the same."""
    steps = [_step(state, now)]
    if state == LedgerState.DEAD_LETTERED.value:
        steps.insert(0, _step(LedgerState.FAILED.value, now))
    is_first = {"$eq": ["$state", LedgerState.PROCESSING.value]}
    return {"$cond": [is_first, _on(steps), "$path"]}


def _is_new(generation: int) -> Document:
    return {"$ne": ["$generation", generation]}


def _on(*steps: Any) -> Document:
    path = {"$concatArrays": [{"$ifNull": ["$path", []]}, *steps]}
    return {"$slice": [path, _LONGEST]}


def _step(state: str, now: Any) -> Document:
    return {"state": state, "at": now}
