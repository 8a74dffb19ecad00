"""Examples of answers about workers."""

from datetime import UTC, datetime
from typing import Any, Final

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
