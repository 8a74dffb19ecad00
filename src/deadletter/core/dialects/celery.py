"""Celery's messages, protocol 2: the task in the headers, its arguments in the body."""

from typing import Any, Final

from .found import Found, Told
from .values import count, document, mapping, moment, shown, words

RESULT: Final = "result"
"""Under this name a drain adds what the result backend has stored, as JSON."""

_MARKS: Final = ("task", "id", "root_id")
_FAILED: Final = frozenset({"FAILURE", "RETRY", "REVOKED"})
_SHOWN: Final = ("root_id", "parent_id", "group", "eta", "expires", "origin")


def celery(found: Found) -> Told | None:
    """
    Task, arguments, retries; the error if the result backend has told it.

    All headers are Celery's own and go back with it.
    """
    if not all(found.value(name) for name in _MARKS):
        return None
    task = found.text("task")
    result = _failure(found)
    error = mapping(result.get("result"))
    about = found.about
    return Told(
        dialect="celery",
        source=found.source or about.get("routing_key", ""),
        message_id=found.text("id"),
        error_type=words(error.get("exc_type")),
        error_text=_text(error.get("exc_message")),
        stack=words(result.get("traceback")),
        attempts=_attempts(found, is_run=bool(result)),
        dead_at=moment(words(result.get("date_done"))),
        expires_at=moment(found.text("expires")),
        consumer=task,
        task=task,
        delivery=about.get("delivery_tag", ""),
        fields={"task": task, **_arguments(found), **_others(found)},
    )


def _failure(found: Found) -> dict[str, Any]:
    result = mapping(document(found.about.get(RESULT, "").encode("utf-8", "replace")))
    return result if result.get("status") in _FAILED else {}


def _text(message: object) -> str:
    """Return an exception's arguments as Celery stores them, as one text."""
    if isinstance(message, list):
        return message[0] if len(message) == 1 and words(message[0]) else shown(message)
    return words(message)


def _attempts(found: Found, *, is_run: bool) -> int:
    retries = found.text("retries")
    # A list on Redis may hold tasks that no worker has ever taken.
    is_known = is_run or found.kind != "celery" or count(retries) > 0
    return count(retries) + 1 if retries and is_known else 0


def _arguments(found: Found) -> dict[str, str]:
    body = document(found.body)
    if isinstance(body, list) and len(body) == 3:  # args, kwargs, and callbacks
        return {"args": shown(body[0]), "kwargs": shown(body[1])}
    return {"args": found.text("argsrepr"), "kwargs": found.text("kwargsrepr")}


def _others(found: Found) -> dict[str, str]:
    said = {name: found.text(name) for name in _SHOWN}
    id_ = found.text("id")
    return {k: v for k, v in said.items() if v not in ("", "null", id_)}
