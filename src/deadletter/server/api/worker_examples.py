"""Examples of answers about workers and intakes."""

from datetime import UTC, datetime
from typing import Any, Final

from deadletter.core.intakes import IntakeState, IntakeStatus, Sighting
from deadletter.core.letter import LetterHead
from deadletter.core.presence import WorkedMailbox
from deadletter.office.workers import WorkerLine

_AT: Final = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)

WORKERS: Final[dict[str, Any]] = {
    "get_workers": [
        WorkerLine(
            name="shop-1:17",
            host="shop-1",
            version="1.8.1",
            started_at=_AT,
            seen_at=_AT,
            is_silent=False,
            mailboxes=(WorkedMailbox(mailbox="orders", slots=200, in_flight=12),),
        )
    ]
}
"""Answers by the name of the operation."""


def intake_examples(head: LetterHead) -> dict[str, tuple[Any, Any]]:
    """Return answers and requests by the name of the operation."""
    status = IntakeStatus(
        name="orders-dead",
        server="shop",
        address="amqp://rabbit:5672",
        place="orders.dead",
        state=IntakeState.FOLLOWING,
        since=_AT,
        waiting=12,
        looked_at=_AT,
        taken=400,
        new=388,
        last_taken_at=_AT,
        dialect="rabbitmq",
    )
    why = {"reason": "the bank is back"}
    return {
        "list_intakes": ([status], None),
        "look_at_intake": ([Sighting(head=head, dialect="rabbitmq")], {"limit": 10}),
        "take_from_intake": (status, {"limit": 100} | why),
        "follow_intake": (status, why),
        "stop_intake": (status, why),
    }
