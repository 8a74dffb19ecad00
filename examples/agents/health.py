"""The depth of dead-letter mailboxes, for health checks."""

from typing import Any, Final

from .message import Mailbox

THRESHOLD: Final = 100


def health_check(*dead_letters: Mailbox[Any, Any], threshold: int = THRESHOLD) -> dict[str, Any]:
    """
    Return "healthy" while every mailbox holds less than `threshold`, otherwise "degraded".

    `dlq` shows the deepest of them. A LoopGroup with a `health_port` answers the same at
    /health/dlq.
    """
    depths = [(box.approximate_count(), box.name) for box in dead_letters]
    depth, name = max(depths)
    return {
        "status": "healthy" if depth < threshold else "degraded",
        "dlq": {"name": name, "depth": depth, "threshold": threshold},
    }
