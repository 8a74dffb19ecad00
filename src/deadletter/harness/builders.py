"""Messages and letters for tests of single handlers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import burial
from deadletter.core.failure import Bury, Reason
from deadletter.core.failure.capture import capture
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.core.policy import DLQPolicy
from deadletter.core.text import many
from deadletter.runtime.outgoing import SendOptions, new_message
from deadletter.testing.virtual_time import BEGINNING

_ERROR: Final = RuntimeError("failed")


def make_message(
    body: object,
    *,
    id: str = "m-1",
    sent_at: datetime = BEGINNING,
    key: str | None = None,
    headers: Mapping[str, str | bytes] | None = None,
    idempotency_key: str | None = None,
    reply_to: str | None = None,
    content_type: str | None = None,
) -> Message:
    """Return a message, for `App.handle`; the arguments are those of `App.send`."""
    options = SendOptions(
        key=key,
        headers=headers,
        idempotency_key=idempotency_key,
        reply_to=reply_to,
        content_type=content_type,
    )
    return new_message(body, options, id=id, now=sent_at)


def make_letter(
    body: object = None,
    *,
    source: str = "orders",
    message: Message | None = None,
    error: BaseException = _ERROR,
    attempts: int = 1,
    died_at: datetime = BEGINNING,
    version: str = "",
) -> DeadLetter:
    """
    Return a dead letter, for handlers of letters.

    Args:
        body: The body of its message, as in `App.send`.
        source: The mailbox it came from.
        message: The message itself, instead of a body.
        error: What each attempt raised.
        attempts: How often it was tried.
        died_at: When it died.
        version: The version of the application that gave up on it.
    """
    policy = DLQPolicy(max_attempts=attempts)
    failure = capture(error, policy.classifier, died_at)
    delivery = Delivery(
        message=message or make_message(body, sent_at=died_at), mailbox=source, attempt=attempts
    )
    history = ""
    for number in range(1, attempts + 1):
        history = append(history, attempt_of(failure, number=number, at=died_at, version=version))
    text = f"failed {attempts} of {many(attempts, 'attempt')}"
    return burial(
        delivery,
        failure,
        Bury(Reason.ATTEMPTS_EXHAUSTED, text),
        history=history,
        now=died_at,
        consumer=source,
        version=version,
    )
