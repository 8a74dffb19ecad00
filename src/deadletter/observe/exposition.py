"""What one process counts, as text that Prometheus reads."""

from prometheus_client import CollectorRegistry, generate_latest

from deadletter.core.events import Observer

from .metrics import Metrics


class Counted:
    """The numbers of one process: `observe` counts, `text` tells."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.observe: Observer = Metrics(self._registry)

    async def text(self) -> bytes:
        """Everything that was counted."""
        return generate_latest(self._registry)
