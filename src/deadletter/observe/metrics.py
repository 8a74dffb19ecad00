"""
Events as Prometheus metrics.

Labels come from closed lists or are capped, so that hostile names cannot make more
series than a server holds. Ids and fingerprints are never labels.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deadletter.core.events import (
    BackInReach,
    BrakeClosed,
    BrakeOpened,
    Buried,
    CopyFailed,
    Event,
    FailedForGood,
    HandlerStuck,
    LeaseLost,
    LetterHandled,
    LetterRefused,
    LoopDied,
    OutOfReach,
    Received,
    ReplyFailed,
    Retried,
    Stalled,
    Succeeded,
    SuspectsFound,
)
from deadletter.core.failure import Failure
from deadletter.core.letter import State

from .lines import name_of

OTHER: Final = "other"
MOST: Final = 200  # values of one label that are told apart

_SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)
_AGES: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)


class Capped:
    """The first so many different values as they are, all later ones as `other`."""

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


class Metrics:
    """An observer that counts, times and gauges what happens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"dlq_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"dlq_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(
                f"dlq_{name}", about, ["mailbox"], registry=registry, buckets=buckets
            )

        self._dead_lettered = counter(
            "messages_dead_lettered",
            "Messages that became dead letters.",
            *("source", "consumer", "reason", "error_type"),
        )
        self._received = counter("messages_received", "Deliveries claimed.", "mailbox")
        self._attempts = counter(
            "attempts", "Attempts, by how they ended.", "mailbox", "outcome"
        )
        self._errors = counter(
            "errors", "Errors, by what they are.", "mailbox", "category", "trouble"
        )
        self._unkept = counter(
            "dead_letter_failures", "Failures to keep a dead letter: page on it."
        )
        self._mishaps = counter("mishaps", "What should not happen, by kind.", "kind")
        self._processed = counter(
            "messages_processed", "Letters a DLQ consumer took.", "mailbox", "action"
        )
        self._letters = gauge("messages", "Letters in the office.", "state", "source")
        self._brake = gauge("breaker_state", "1 while the brake is open.", "mailbox")
        self._unreachable = gauge(
            "out_of_reach", "1 while it cannot be reached.", "mailbox", "what"
        )
        self._handler_seconds = histogram(
            "handler_duration_seconds", "Time handlers took.", _SECONDS
        )
        self._letter_seconds = histogram(
            "processing_duration_seconds", "Time DLQ handlers took.", _SECONDS
        )
        self._ages = histogram(
            "message_age_seconds", "Time between death and a DLQ handler.", _AGES
        )
        self._mailbox, self._source = Capped(), Capped()
        self._consumer, self._error_type = Capped(), Capped()
        self._drawn: set[str] = set()  # sources whose letters are gauged
        self._on: dict[type[Event], Callable[[Any], None]] = {
            Received: self._on_received,
            Succeeded: self._on_succeeded,
            Retried: self._on_retried,
            Buried: self._on_buried,
            FailedForGood: self._on_failed,
            LeaseLost: self._on_lease_lost,
            BrakeOpened: lambda event: self._braked(event, 1),
            BrakeClosed: lambda event: self._braked(event, 0),
            OutOfReach: self._on_out_of_reach,
            BackInReach: self._on_back_in_reach,
            LetterHandled: self._on_letter_handled,
            LetterRefused: self._on_letter_refused,
            SuspectsFound: lambda event: self._mishap(event, event.lost),
            HandlerStuck: self._mishap,
            ReplyFailed: self._mishap,
            CopyFailed: self._mishap,
            LoopDied: self._mishap,
            Stalled: self._mishap,
        }

    def __call__(self, event: Event) -> None:
        """Count it in."""
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def show_letters(self, counts: Mapping[str, Mapping[State, int]]) -> None:
        """How many letters of each state there are now, by source."""
        shown: dict[str, dict[State, int]] = {
            source: dict.fromkeys(State, 0) for source in self._drawn
        }
        for source, states in counts.items():
            into = shown.setdefault(self._source(source), dict.fromkeys(State, 0))
            for state, count in states.items():
                into[state] += count
        self._drawn |= set(shown)
        for source, states in shown.items():
            for state, count in states.items():
                self._letters.labels(state.value, source).set(count)

    def _on_received(self, event: Received) -> None:
        self._received.labels(self._mailbox(event.mailbox)).inc(event.count)

    def _on_succeeded(self, event: Succeeded) -> None:
        mailbox = self._mailbox(event.mailbox)
        self._attempts.labels(mailbox, "succeeded").inc()
        self._handler_seconds.labels(mailbox).observe(event.seconds)

    def _on_retried(self, event: Retried) -> None:
        outcome = "retried" if event.charged else "spared"
        self._failed(event.mailbox, outcome, event.failure)

    def _on_buried(self, event: Buried) -> None:
        self._failed(event.mailbox, "buried", event.failure)
        self._dead_lettered.labels(
            self._source(event.mailbox),
            self._consumer(event.consumer),
            event.reason.value,
            self._error_type(event.failure.error_type),
        ).inc()

    def _on_failed(self, event: FailedForGood) -> None:
        self._failed(event.mailbox, "failed", event.failure)

    def _on_lease_lost(self, event: LeaseLost) -> None:
        self._attempts.labels(self._mailbox(event.mailbox), "lost").inc()
        self._mishap(event)

    def _on_out_of_reach(self, event: OutOfReach) -> None:
        what = _kind(event.what)
        if what in ("office", "letter"):
            self._unkept.inc()
        if what != "letter":  # a letter that was refused never comes back in reach
            self._unreachable.labels(self._mailbox(event.mailbox), what).set(1)

    def _on_back_in_reach(self, event: BackInReach) -> None:
        labels = self._mailbox(event.mailbox), _kind(event.what)
        self._unreachable.labels(*labels).set(0)

    def _on_letter_handled(self, event: LetterHandled) -> None:
        mailbox = self._mailbox(event.mailbox)
        action = event.action if event.action in _ACTIONS else OTHER
        self._processed.labels(mailbox, action).inc()
        self._letter_seconds.labels(mailbox).observe(event.seconds)
        self._ages.labels(mailbox).observe(event.age)

    def _on_letter_refused(self, event: LetterRefused) -> None:
        self._processed.labels(self._mailbox(event.mailbox), "refused").inc()

    def _failed(self, mailbox: str, outcome: str, failure: Failure) -> None:
        name = self._mailbox(mailbox)
        self._attempts.labels(name, outcome).inc()
        self._errors.labels(name, failure.category.value, failure.trouble.value).inc()

    def _braked(self, event: Event, state: int) -> None:
        self._brake.labels(self._mailbox(event.mailbox)).set(state)

    def _mishap(self, event: Event, count: int = 1) -> None:
        self._mishaps.labels(name_of(event)).inc(count)


_ACTIONS: Final = frozenset({"processed", "replayed", "discarded"})
_REACHED: Final = frozenset({"broker", "office", "ledger", "mailbox", "letter"})


def _kind(what: str) -> str:
    """`mailbox orders-dlq` is a mailbox, whichever: names are not told apart."""
    kind = what.partition(" ")[0]
    return kind if kind in _REACHED else OTHER
