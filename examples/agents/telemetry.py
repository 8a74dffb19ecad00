"""
What can be seen from outside: log lines and metrics.

The seven `dlq.*` metrics go to OpenTelemetry under these names, and to Prometheus with
underscores. Log lines are deadletter's own: `buried`, `letter-handled` and others.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from opentelemetry.metrics import MeterProvider
from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.core import GaugeMetricFamily

from deadletter.core.events import Event
from deadletter.core.letter import State
from deadletter.observe.logs import log_events
from deadletter.observe.metrics import Metrics
from deadletter.observe.telemetry import Meters
from deadletter.system import SystemClock

from .errors import MailboxConnectionError
from .mailbox import PostMailbox


class Telemetry:
    """An observer for a Post; logs, counts and times what its loops do."""

    def __init__(
        self, *, registry: CollectorRegistry | None = None, provider: MeterProvider | None = None
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._meters = Meters(provider, system="agents")
        self._observers = (log_events(SystemClock()), Metrics(self.registry), self._meters)
        self._alerts = Counter(
            "dlq_messages",
            "Dead letters somebody was told of.",
            ["source", "error_type"],
            registry=self.registry,
        )
        self._watched: list[PostMailbox[Any, Any]] = []

    def __call__(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    def count_alert(self, *, source: str, error_type: str) -> None:
        self._alerts.labels(source, error_type).inc()

    def watch(self, *dead_letters: PostMailbox[Any, Any]) -> None:
        """Show how deep these are, whenever somebody looks."""
        if not self._watched:
            self.registry.register(self)
        self._watched += dead_letters

    def depths(self) -> dict[str, int]:
        """How deep they are now; also told to OpenTelemetry."""
        found = {box.name: box.approximate_count() for box in self._watched}
        self._meters.show_letters({name: {State.PENDING: depth} for name, depth in found.items()})
        return found

    def describe(self) -> list[GaugeMetricFamily]:
        """Asked when we are registered, which is too early to look."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Asked by Prometheus; nothing while the broker cannot be reached."""
        gauge = GaugeMetricFamily("dlq_queue_depth", "Dead letters waiting.", labels=["mailbox"])
        with suppress(MailboxConnectionError):
            for name, depth in self.depths().items():
                gauge.add_metric([name], depth)
            yield gauge

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Answer Prometheus; the port, which the system chose if it was 0."""
        server, _ = start_http_server(port, addr=host, registry=self.registry)
        return int(server.server_port)
