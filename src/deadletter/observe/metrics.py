"""
Events as Prometheus metrics.

Labels come from closed lists or are capped, so that hostile names cannot create more
series than a server can store. Ids and fingerprints are never labels.
"""

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from deadletter.core.events import (
    ACTIONS,
    Alerted,
    AlertFailed,
    AnchorFailed,
    BackInReach,
    BrakeClosed,
    BrakeOpened,
    Buried,
    ClockJumped,
    CopyFailed,
    Event,
    FailedForGood,
    FilingFailed,
    HandlerStuck,
    HeadersIgnored,
    ItemDeleted,
    ItemMoved,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    LoopDied,
    Observer,
    OutOfReach,
    PolicyFailed,
    Received,
    ReplyFailed,
    Retried,
    Stalled,
    Succeeded,
    SuspectsFound,
)
from deadletter.core.failure import Reason
from deadletter.output import dropped_lines
from deadletter.profiles.pipeline import node_of

from .logs import name_of

OTHER: Final = "other"
MOST: Final = 200  # different values of one label


class Capped:
    """Keeps the first values of a label, and replaces all later ones by `other`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


# `dlq.messages.sent` and similar names in the style of Prometheus, and the names of a
# pipeline (`node_id` is the node that reads the mailbox). The documentation lists the names
# and their aliases; ages have only one name, `dlq_message_age_seconds`.

MILLISECONDS: Final = (1, 5, 20, 100, 500, 1000, 2500, 5000, 10_000, 60_000, 900_000)


class Aliases:
    """An observer that counts events under additional names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, label: str = "mailbox") -> Counter:
            return Counter(name, about, [label], registry=registry)

        self._sent = counter("dlq_messages_sent", "Messages that became dead letters.")
        self._replayed = counter("dlq_messages_replayed", "Letters that DLQ consumers sent back.")
        self._discarded = counter("dlq_messages_discarded", "Letters that DLQ consumers discarded.")
        self._of_node = counter(
            "pipestream_dlq_messages", "Messages that became dead letters.", "node_id"
        )
        self._milliseconds = Histogram(
            "dlq_processing_duration_ms",
            "Run time of DLQ handlers, in milliseconds.",
            ["mailbox"],
            registry=registry,
            buckets=MILLISECONDS,
        )
        self._mailbox = Capped()

    def __call__(self, event: Event) -> None:
        """Count an event, if one of the names covers it."""
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


COMBINATIONS: Final = 1_000  # of source, consumer and error type

_OF_ITEMS: Final = ("queue", "death", "outcome")
_SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
_AGES: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)


class Metrics:
    """An observer that counts and times events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"dlq_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"dlq_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            labels = ("mailbox", *labels)
            return Histogram(f"dlq_{name}", about, labels, registry=registry, buckets=buckets)

        self._dead_lettered = counter(
            "messages_dead_lettered",
            "Messages that became dead letters.",
            *("source", "consumer", "reason", "error_type"),
        )
        self._received = counter("messages_received", "Deliveries claimed.", "mailbox")
        self._attempts = counter("attempts", "Attempts, by how they ended.", "mailbox", "outcome")
        self._errors = counter(
            "errors", "Errors, by category and trouble.", "mailbox", "category", "trouble"
        )
        self._unkept = counter(
            "dead_letter_failures", "Failures to store a dead letter. Alert on it."
        )
        self._conflicts = counter(
            "id_conflicts", "Messages whose id or key came with two bodies.", "mailbox"
        )
        self._mishaps = counter("mishaps", "Unexpected events, by kind.", "kind")
        self._processed = counter(
            "messages_processed", "Letters a DLQ consumer took.", "mailbox", "action"
        )
        self._dead_items = counter("dead_items", "Items of the queue server that died.", *_OF_ITEMS)
        self._alerts = counter(
            "alerts", "Alerts, by whether they could be sent.", "target", "outcome"
        )
        self._brake = gauge("breaker_state", "1 while the brake is open.", "mailbox")
        self._openings = counter(
            "brake_openings", "Times the brake opened: outage or systemic.", "mailbox", "kind"
        )
        self._held = counter(
            "messages_held", "Messages released while the brake was open.", "mailbox"
        )
        self._unreachable = gauge("out_of_reach", "1 while it is unreachable.", "mailbox", "what")
        self._handler_seconds = histogram(
            "handler_duration_seconds", "Run time of handlers, by outcome.", _SECONDS, "outcome"
        )
        self._letter_seconds = histogram(
            "processing_duration_seconds", "Run time of DLQ handlers.", _SECONDS
        )
        self._ages = histogram(
            "message_age_seconds", "Time between death and a DLQ handler.", _AGES
        )
        gauge(
            "output_lines_dropped", "Lines of output dropped so far because nobody read them."
        ).set_function(dropped_lines)
        self._mailbox, self._source = Capped(), Capped()
        self._consumer, self._error_type = Capped(), Capped()
        self._combination = Capped(COMBINATIONS)
        self._aliases = Aliases(registry)
        self._on: dict[type[Event], Callable[[Any], None]] = {
            Received: self._on_received,
            Succeeded: self._on_succeeded,
            Retried: self._on_retried,
            Buried: self._on_buried,
            FailedForGood: lambda event: self._failed(event, "failed"),
            LeaseLost: self._on_lease_lost,
            BrakeOpened: self._on_brake_opened,
            BrakeClosed: self._on_brake_closed,
            OutOfReach: self._on_out_of_reach,
            BackInReach: self._on_back_in_reach,
            LetterHandled: self._on_letter_handled,
            LetterRefused: self._on_letter_refused,
            SuspectsFound: lambda event: self._mishap(event, event.lost),
            HandlerStuck: self._mishap,
            PolicyFailed: self._mishap,
            ReplyFailed: self._mishap,
            CopyFailed: self._mishap,
            FilingFailed: self._on_filing_failed,
            HeadersIgnored: self._mishap,
            LoopDied: self._mishap,
            Stalled: self._mishap,
            ClockJumped: self._mishap,
            AnchorFailed: self._mishap,
            ItemMoved: lambda event: self._on_dead_item(event, "moved"),
            ItemDeleted: lambda event: self._on_dead_item(event, "deleted"),
            Alerted: lambda event: self._on_alert(event, "told"),
            AlertFailed: lambda event: self._on_alert(event, "failed"),
        }

    def __call__(self, event: Event) -> None:
        """Count an event."""
        on = self._on.get(type(event))
        if on is not None:
            on(event)
            self._aliases(event)

    def _on_received(self, event: Received) -> None:
        self._received.labels(self._mailbox(event.mailbox)).inc(event.count)

    def _on_succeeded(self, event: Succeeded) -> None:
        mailbox = self._mailbox(event.mailbox)
        self._attempts.labels(mailbox, "succeeded").inc()
        self._handler_seconds.labels(mailbox, "succeeded").observe(event.seconds)

    def _on_retried(self, event: Retried) -> None:
        self._failed(event, "retried" if event.charged else "spared")

    def _on_buried(self, event: Buried) -> None:
        self._failed(event, "buried")
        source, consumer = self._source(event.mailbox), self._consumer(event.consumer)
        error_type = self._error_type(event.failure.error_type)
        # Each label is capped, but their product could still be millions.
        if self._combination(f"{source}\0{consumer}\0{error_type}") == OTHER:
            error_type = OTHER
        self._dead_lettered.labels(source, consumer, event.reason.value, error_type).inc()
        if event.reason is Reason.ID_CONFLICT or (event.conflict and event.is_new):
            self._conflicts.labels(self._mailbox(event.mailbox)).inc()

    def _on_lease_lost(self, event: LeaseLost) -> None:
        self._attempts.labels(self._mailbox(event.mailbox), "lost").inc()
        self._mishap(event)

    def _on_out_of_reach(self, event: OutOfReach) -> None:
        what = _kind(event.what)
        if what in ("office", "letter"):
            self._unkept.inc()
        if what != "letter":  # a refused letter never becomes reachable again
            self._unreachable.labels(self._mailbox(event.mailbox), what).set(1)

    def _on_filing_failed(self, event: FilingFailed) -> None:
        if event.what == "death":
            self._unkept.inc()
        self._mishap(event)

    def _on_back_in_reach(self, event: BackInReach) -> None:
        labels = self._mailbox(event.mailbox), _kind(event.what)
        self._unreachable.labels(*labels).set(0)

    def _on_letter_handled(self, event: LetterHandled) -> None:
        mailbox = self._mailbox(event.mailbox)
        action = event.action if event.action in ACTIONS else OTHER
        self._processed.labels(mailbox, action).inc()
        self._letter_seconds.labels(mailbox).observe(event.seconds)
        self._ages.labels(mailbox).observe(event.age)

    def _on_letter_refused(self, event: LetterRefused) -> None:
        self._processed.labels(self._mailbox(event.mailbox), "refused").inc()

    def _on_dead_item(self, event: ItemMoved | ItemDeleted, outcome: str) -> None:
        self._dead_items.labels(self._mailbox(event.mailbox), event.death, outcome).inc()

    def _on_alert(self, event: Alerted | AlertFailed, outcome: str) -> None:
        self._alerts.labels(event.target, outcome).inc(event.alerts)

    def _failed(self, event: Retried | Buried | FailedForGood, outcome: str) -> None:
        name, failure = self._mailbox(event.mailbox), event.failure
        self._attempts.labels(name, outcome).inc()
        self._errors.labels(name, failure.category.value, failure.trouble.value).inc()
        if event.seconds > 0:  # else no handler ran, for example after a lost worker
            self._handler_seconds.labels(name, outcome).observe(event.seconds)

    def _on_brake_opened(self, event: BrakeOpened) -> None:
        name = self._mailbox(event.mailbox)
        self._brake.labels(name).set(1)
        self._openings.labels(name, event.kind.value).inc()

    def _on_brake_closed(self, event: BrakeClosed) -> None:
        name = self._mailbox(event.mailbox)
        self._brake.labels(name).set(0)
        self._held.labels(name).inc(event.held)

    def _mishap(self, event: Event, count: int = 1) -> None:
        self._mishaps.labels(name_of(event)).inc(count)


_KINDS: Final = frozenset({"broker", "office", "ledger", "mailbox", "letter"})


def _kind(what: str) -> str:
    """Return the kind of a thing: `mailbox orders-dlq` is a mailbox."""
    kind = what.partition(" ")[0]
    return kind if kind in _KINDS else OTHER


class Counted:
    """The metrics of one process: `observe` counts, `text` renders."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.observe: Observer = Metrics(self._registry)

    async def text(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self._registry)
