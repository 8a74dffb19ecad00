"""Celery's messages, protocol 2: the task in the headers, its arguments in the body."""

from typing import Final

from .found import Found, Told
from .values import count

_MARKS: Final = ("task", "id", "root_id")


def celery(found: Found) -> Told | None:
    """
    Which task it is and how often it was retried; the error is in no message.

    All headers are Celery's own and go back with it.
    """
    if not all(found.value(name) for name in _MARKS):
        return None
    retries = found.text("retries")
    return Told(
        dialect="celery",
        source=found.source,
        message_id=found.text("id"),
        attempts=count(retries) + 1 if retries else 0,
        consumer=found.text("task"),
    )
