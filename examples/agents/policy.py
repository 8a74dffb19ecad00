"""When to give a message up, and where it goes then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from deadletter import ErrorClassifier, Rule
from deadletter.core.failure import Trouble

from .letters import DeadLetter
from .message import Mailbox, Message

T = TypeVar("T")
R = TypeVar("R", default=Any)  # nothing of a policy says what it is


@dataclass(slots=True, frozen=True)
class DLQPolicy(Generic[T, R]):
    """
    A dead-letter mailbox, and when to send something there.

    `include_errors` are given up at once, `exclude_errors` never, all others with the
    `max_delivery_count`-th delivery. Types are matched exactly. Subclass it and
    override `should_dead_letter` for rules of your own: what it says is done. It is
    asked where everything waits for it, so it must not wait itself.
    """

    mailbox: Mailbox[DeadLetter[T], None]
    max_delivery_count: int = 5
    include_errors: frozenset[type[Exception]] | None = None
    exclude_errors: frozenset[type[Exception]] | None = None

    def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
        """True to give it up, False to try again after a while."""
        if self.exclude_errors and type(error) in self.exclude_errors:
            return False
        if self.include_errors and type(error) in self.include_errors:
            return True
        return message.delivery_count >= self.max_delivery_count


@dataclass(slots=True, frozen=True)
class ErrorBudgetPolicy(DLQPolicy[T, R]):
    """Gives up early while more than `error_budget` of the recent attempts fail."""

    error_budget: float = 0.5

    def error_rate(self, message: Message[T, Any]) -> float:
        """The share that fails; override it to tell tenants or kinds apart."""
        return message.error_rate

    def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
        if message.delivery_count >= self.max_delivery_count:
            return True
        return self.error_rate(message) > self.error_budget


@dataclass(slots=True, frozen=True)
class RuledPolicy(DLQPolicy[T, R]):
    """
    Errors matched by rules, and a dead-letter mailbox for each kind.

    A rule matches by exact type, subclass, name or pattern, as it likes. What it calls
    permanent is given up at once, what it calls transient never; the rest is counted.
    `routes` lead from a rule's code to the mailbox for it, others to `mailbox`.
    """

    rules: tuple[Rule, ...] = ()
    routes: Mapping[str, Mailbox[DeadLetter[T], None]] = field(default_factory=dict)

    def should_dead_letter(self, message: Message[T, Any], error: Exception) -> bool:
        verdict = ErrorClassifier(self.rules).classify(error)
        if verdict.rule and verdict.trouble is Trouble.PERMANENT:
            return True
        if verdict.rule and verdict.trouble is Trouble.TRANSIENT:
            return False
        # Without super(): a slotted dataclass is another class than the one it is in.
        return DLQPolicy.should_dead_letter(self, message, error)
