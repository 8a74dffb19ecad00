"""
Log lines about dead letters.

They are "Message dead-lettered", "Processing dead letter" and "DLQ handler failed", one line
for each letter. Other events have the names that deadletter gives them.
"""

from typing import Final

import structlog

from deadletter.core.events import Buried, Event, LetterHandled, LetterRefused, Observer
from deadletter.observe.logs import line
from deadletter.profiles.mailbox import qualified

ACTIONS: Final = {"replayed": "replay", "discarded": "discard", "alerted": "alert"}

log = structlog.get_logger("agents.dlq")


class LetterLog:
    """An observer that logs dead letters and their handling, and passes other events on."""

    def __init__(self, others: Observer) -> None:
        self._others = others

    def __call__(self, event: Event) -> None:
        match event:
            case Buried():
                log.warning(
                    "Message dead-lettered",
                    message_id=line(event.message_id),
                    request_id=_known(event.request_id),
                    source_mailbox=line(event.mailbox),
                    delivery_count=event.attempt,
                    error_type=line(qualified(event.failure.error_type)),
                    error_message=line(event.failure.text),
                )
            case LetterHandled():
                action = ACTIONS.get(event.action)
                log.info(
                    "Processing dead letter",
                    message_id=line(event.message_id),
                    request_id=_known(event.request_id),
                    age_seconds=round(event.age, 6),
                    **({} if action is None else {"action": action}),
                )
            case LetterRefused():
                log.error(
                    "DLQ handler failed",
                    message_id=line(event.message_id),
                    request_id=_known(event.request_id),
                    error=line(event.failure.text),
                    delay=event.delay,
                )
            case _:
                self._others(event)


def _known(request_id: str | None) -> str:
    return line(str(request_id))
