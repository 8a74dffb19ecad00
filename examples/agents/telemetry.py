"""
Log lines and metrics.

The seven `dlq.*` metrics go to OpenTelemetry under these names, and to Prometheus with
underscores.
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
from .letter_log import LetterLog
from .message import Mailbox


class Telemetry:
    """An observer for a Backend: logs, counts and times what its loops do."""

    def __init__(
        self, *, registry: CollectorRegistry | None = None, provider: MeterProvider | None = None
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._meters = Meters(provider, system="agents")
        lines = LetterLog(log_events(SystemClock()))
        self._observers = (lines, Metrics(self.registry), self._meters)
        self._alerts = Counter(
            "dlq_messages",
            "Dead letters that an alert was raised for.",
            ["source", "error_type"],
            registry=self.registry,
        )
        self._watched: list[Mailbox[Any, Any]] = []

    def __call__(self, event: Event) -> None:
        for observer in self._observers:
            observer(event)

    def count_alert(self, *, source: str, error_type: str) -> None:
        """Count an alert."""
        self._alerts.labels(source, error_type).inc()

    def watch(self, *dead_letters: Mailbox[Any, Any]) -> None:
        """Show the depth of these mailboxes with each request for metrics."""
        if not self._watched:
            self.registry.register(self)
        self._watched += dead_letters

    def depths(self) -> dict[str, int]:
        """Return the depths, and pass them to OpenTelemetry."""
        found = {box.name: box.approximate_count() for box in self._watched}
        self._meters.show_letters({name: {State.PENDING: depth} for name, depth in found.items()})
        return found

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the registry asks before there is anything to count."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the depths for Prometheus; nothing while the broker is unavailable."""
        gauge = GaugeMetricFamily("dlq_queue_depth", "Dead letters waiting.", labels=["mailbox"])
        with suppress(MailboxConnectionError):
            for name, depth in self.depths().items():
                gauge.add_metric([name], depth)
            yield gauge

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Serve the metrics; return the port, which the system chooses if it is 0."""
        server, _ = start_http_server(port, addr=host, registry=self.registry)
        return int(server.server_port)
