"""Policies: when a failed message becomes a dead letter, and where it goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from deadletter import ErrorClassifier, Rule
from deadletter.core.failure import Trouble

from .dead_letter import DeadLetter
from .message import Mailbox, Message

T = TypeVar("T")
R = TypeVar("R", default=Any)  # no field of a policy has this type


@dataclass(slots=True, frozen=True)
class DLQPolicy(Generic[T, R]):
    """
    A dead-letter mailbox, and the decision when a message goes there.

    `include_errors` are dead-lettered at once, `exclude_errors` never, all others at the
    `max_delivery_count`-th delivery. Types are matched exactly. Subclasses may override
    `should_dead_letter`; it must not block, because the loop waits for it.
    """

    mailbox: Mailbox[DeadLetter[T], None]
    max_delivery_count: int = 5
    include_errors: frozenset[type[Exception]] | None = None
    exclude_errors: frozenset[type[Exception]] | None = None

    def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
        """Return True to dead-letter the message, False to retry it with backoff."""
        if self.exclude_errors and type(error) in self.exclude_errors:
            return False
        if self.include_errors and type(error) in self.include_errors:
            return True
        return message.delivery_count >= self.max_delivery_count


@dataclass(slots=True, frozen=True)
class ErrorBudgetPolicy(DLQPolicy[T, R]):
    """A policy that gives up early while more than `error_budget` of recent attempts fail."""

    error_budget: float = 0.5

    def error_rate(self, message: Message[T, Any]) -> float:
        """Return the share that fails; override it to separate tenants or kinds of requests."""
        return float(getattr(message, "error_rate", 0.0))

    def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
        if message.delivery_count >= self.max_delivery_count:
            return True
        return self.error_rate(message) > self.error_budget


@dataclass(slots=True, frozen=True)
class RuledPolicy(DLQPolicy[T, R]):
    """
    A policy with rules for errors, and a dead-letter mailbox for each kind.

    A rule matches by exact type, subclass, name or pattern. Errors that it calls permanent
    are dead-lettered at once, transient ones never; all others are counted. `routes` lead
    from the code of a rule to its mailbox, all other letters go to `mailbox`.
    """

    rules: tuple[Rule, ...] = ()
    routes: Mapping[str, Mailbox[DeadLetter[T], None]] = field(default_factory=dict)

    def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
        verdict = ErrorClassifier(self.rules).classify(error)
        if verdict.rule and verdict.trouble is Trouble.PERMANENT:
            return True
        if verdict.rule and verdict.trouble is Trouble.TRANSIENT:
            return False
        # Not super(): dataclass(slots=True) makes another class than the one it is in.
        return DLQPolicy.should_dead_letter(self, message, error)
