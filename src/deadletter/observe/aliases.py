"""
The same numbers under the names that others alert on and draw.

`dlq.messages.sent` and its like in Prometheus' spelling, and a pipeline's own
(`node_id` is the node that reads the mailbox). What each name is an alias of is in the
documentation; ages have one name only, `dlq_message_age_seconds`.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from deadletter.core.events import Buried, Event, LetterHandled
from deadletter.core.projections.pipeline import node_of

from .labels import Capped

MILLISECONDS: Final = (1, 5, 20, 100, 500, 1000, 2500, 5000, 10_000, 60_000, 900_000)


class Aliases:
    """An observer that counts again, under other names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, label: str = "mailbox") -> Counter:
            return Counter(name, about, [label], registry=registry)

        self._sent = counter("dlq_messages_sent", "Messages that became dead letters.")
        self._replayed = counter(
            "dlq_messages_replayed", "Letters that DLQ consumers sent back."
        )
        self._discarded = counter(
            "dlq_messages_discarded", "Letters that DLQ consumers threw away."
        )
        self._of_node = counter(
            "pipestream_dlq_messages", "Messages that became dead letters.", "node_id"
        )
        self._milliseconds = Histogram(
            "dlq_processing_duration_ms",
            "Time DLQ handlers took, in milliseconds.",
            ["mailbox"],
            registry=registry,
            buckets=MILLISECONDS,
        )
        self._mailbox = Capped()

    def __call__(self, event: Event) -> None:
        """Count it in, if one of the names is about it."""
        if isinstance(event, Buried):
            mailbox = self._mailbox(event.mailbox)
            self._sent.labels(mailbox).inc()
            self._of_node.labels(node_of(mailbox)).inc()
        elif isinstance(event, LetterHandled):
            mailbox = self._mailbox(event.mailbox)
            self._milliseconds.labels(mailbox).observe(event.seconds * 1000)
            if event.action == "replayed":
                self._replayed.labels(mailbox).inc()
            elif event.action == "discarded":
                self._discarded.labels(mailbox).inc()
