"""
Policies: retry, bury or fail.

    failure -> DLQPolicy.decide() -> Decision

Pure functions: time and chance are arguments, and nothing is carried out here.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from .attempts import append, attempt_of, last_number
from .backoff import Backoff, Exponential, is_seconds
from .burial import to_message
from .errors import ConfigError, Signal
from .failure import Bury, Continue, Decision, Fail, Failure, Reason, Retry, Trouble
from .failure.classify import ErrorClassifier
from .failure.rules import DEFAULT
from .letter import DeadLetter
from .message import Delivery, Message, attempt_limit, bad_news

MAILBOX: Final = "{mailbox}"
"""The placeholder in names of dead-letter mailboxes."""


class Route(Struct, frozen=True, kw_only=True):
    """The dead-letter mailbox of letters with certain errors."""

    to: str
    trouble: Trouble | None = None
    code: str | None = None
    error: str | None = None  # type name, with or without its module

    def __post_init__(self) -> None:
        check_template("Route(to=...)", self.to)
        if self.trouble is not None and self.trouble not in tuple(Trouble):
            raise ConfigError(
                f"trouble of a Route must be one of "
                f"{', '.join(f'Trouble.{one.name}' for one in Trouble)}, got {self.trouble!r}."
            )
        for name in ("code", "error"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ConfigError(
                    f'{name} of a Route must be text, such as code="DECLINED" or '
                    f'error="TimeoutError", got {value!r}.'
                )

    def fits(self, failure: Failure) -> bool:
        """Return whether every condition that is set holds."""
        name = failure.error_type
        return (
            (self.trouble is None or self.trouble == failure.trouble)
            and (self.code is None or self.code == failure.code)
            and (self.error is None or self.error in (name, name.rpartition(".")[2]))
        )


def check_template(what: str, name: str) -> None:
    """Reject an invalid name of a dead-letter mailbox."""
    if not isinstance(name, str):
        raise ConfigError(
            f"{what} is {name!r}: use the name of a mailbox, such as '{{mailbox}}-dlq'."
        )
    rest = name.replace(MAILBOX, "")
    if not rest.strip():
        raise ConfigError(
            f"{what} is {name!r}, which is the mailbox itself or nothing: "
            "name another mailbox, such as '{mailbox}-dlq'."
        )
    if "{" in rest or "}" in rest:
        raise ConfigError(
            f"{what} is {name!r}, but only {{mailbox}} can be filled in: "
            "write the other parts of the name out."
        )


__all__ = [
    "DISPOSITIONS",
    "DLQPolicy",
    "Disposition",
    "ErrorBudgetPolicy",
    "LimitMode",
    "Route",
    "Situation",
]

PATIENT: Final = Exponential(1.0, factor=4.0, cap=7200.0)
"""1 second, then four times as long each time, at most two hours."""

LONGEST_WISH: Final = 12 * 3600.0  # the longest Retry-After that counts


class LimitMode(StrEnum):
    """The ways to limit attempts."""

    REACHED = "reached"  # `max_attempts` failures
    EXCEEDED = "exceeded"  # one failure more


class Disposition(StrEnum):
    """The consequence of one kind of trouble."""

    RETRY = "retry"  # until the attempts are used up
    DEAD_LETTER = "dead-letter"
    FAIL = "fail"  # record as failed and delete
    CONTINUE = "continue"  # record the error and acknowledge
    KEEP_RETRYING = "keep-retrying"  # limited only by expiry


DISPOSITIONS: Final[Mapping[Trouble, Disposition]] = MappingProxyType(
    {
        Trouble.TRANSIENT: Disposition.RETRY,
        Trouble.UNKNOWN: Disposition.RETRY,
        Trouble.WORKER_LOST: Disposition.RETRY,
        Trouble.PERMANENT: Disposition.DEAD_LETTER,
        Trouble.MALFORMED: Disposition.DEAD_LETTER,
        Trouble.LOOP: Disposition.DEAD_LETTER,
        Trouble.EXPIRED: Disposition.DEAD_LETTER,
        Trouble.LOGICAL: Disposition.CONTINUE,
    }
)

_REASONS: Final = {
    Trouble.MALFORMED: Reason.UNDECODABLE,
    Trouble.EXPIRED: Reason.EXPIRED,
    Trouble.WORKER_LOST: Reason.WORKER_LOST,
}


class Situation(Struct, frozen=True, kw_only=True):
    """Everything a policy may decide by."""

    delivery: Delivery
    failure: Failure
    error: BaseException
    error_rate: float = 0.0  # share of recent attempts that failed, 0 to 1


class DLQPolicy(Struct, frozen=True, kw_only=True):
    """
    Rules for failed messages: when to retry, when to dead-letter, and where to.

    Subclass it and override `should_dead_letter` for your own rules, `dead_copy` for another
    format in the dead-letter mailbox, or `bad_news` for another format of replies.

    Args:
        max_attempts: Attempts until a message becomes a dead letter (default 10; 0 means
            unlimited). A message sent with its own `max_attempts=` overrides it.
        limit_mode: "reached" buries after `max_attempts` failures (default), "exceeded"
            after one more.
        backoff: Pause before each retry: NoBackoff(), Fixed(5.0), Linear(5.0) or
            Exponential(1.0). Default: 1 second, then four times as long each time, at
            most 2 hours.
        classifier: Rules that classify errors (default: the built-in rules).
        dispositions: Consequences of each kind of trouble, where they differ from the
            default: transient and unknown errors are retried, permanent and malformed
            ones become dead letters, logical ones are recorded and acknowledged.
        include_errors: Exception classes that become dead letters at once (default: none).
        exclude_errors: Exception classes that never become dead letters (default: none).
        expire_after: Seconds after sending when a message is no longer run (default: None,
            no limit).
        dead_queue: Mailbox that receives a copy of each dead letter; `{mailbox}` is filled
            in (default: None, only the office keeps it).
        routes: Other dead-letter mailboxes by error; the first that fits wins (default: ()).
    """

    max_attempts: int = 10  # 0 is unlimited
    limit_mode: LimitMode = LimitMode.REACHED
    backoff: Backoff = PATIENT
    classifier: ErrorClassifier = DEFAULT
    dispositions: Mapping[Trouble, Disposition] = DISPOSITIONS  # overrides of the default
    include_errors: frozenset[type[BaseException]] | None = None
    exclude_errors: frozenset[type[BaseException]] | None = None
    expire_after: float | None = None  # seconds after sending
    dead_queue: str | None = None  # receives copies; {mailbox} is filled in
    routes: tuple[Route, ...] = ()  # by error; the first that fits wins

    def __post_init__(self) -> None:
        if not _is_count(self.max_attempts):
            raise ConfigError(
                f"max_attempts must be >= 0 (0 means unlimited), got {self.max_attempts!r}."
            )
        if self.limit_mode not in tuple(LimitMode):
            raise ConfigError(
                f"limit_mode must be {' or '.join(LimitMode)}, got {self.limit_mode!r}."
            )
        if not callable(getattr(self.backoff, "delay", None)):
            raise ConfigError(
                "backoff must be a backoff such as NoBackoff(), Fixed(5.0), Linear(5.0) or "
                f"Exponential(1.0), got {self.backoff!r}."
            )
        if not isinstance(self.classifier, ErrorClassifier):
            raise ConfigError(
                f"classifier must be an ErrorClassifier, got {self.classifier!r}: write "
                "DEFAULT.extended(Rule(...)), or ErrorClassifier((Rule(...),)) to use "
                "only your own rules."
            )
        _check_dispositions(self.dispositions)
        for name in ("include_errors", "exclude_errors"):
            if not _are_errors(getattr(self, name)):
                raise ConfigError(
                    f"{name} must be a set of exception classes, such as frozenset({{ValueError}})."
                )
        both = (self.include_errors or frozenset()) & (self.exclude_errors or frozenset())
        if both:
            names = ", ".join(sorted(error.__qualname__ for error in both))
            raise ConfigError(
                f"{names} is in both include_errors (dead letter at once) and exclude_errors "
                "(never a dead letter): remove it from one of them."
            )
        _check_expiry(self.expire_after)
        if self.dead_queue is not None:
            check_template("dead_queue", self.dead_queue)
        _check_routes(self.routes)

    def check_mailbox(self, mailbox: str) -> None:
        """Reject a mailbox that would be its own dead-letter mailbox."""
        for name in (self.dead_queue, *(route.to for route in self.routes)):
            if name is not None and name.replace(MAILBOX, mailbox) == mailbox:
                raise ConfigError(
                    f"mailbox {mailbox!r} is its own dead-letter mailbox: "
                    f"name another one, such as '{mailbox}-dlq'."
                )

    def should_dead_letter(self, delivery: Delivery, error: BaseException) -> bool:
        """
        Return whether a delivery that may be retried should be buried instead.

        Excluded errors never are, included ones at once, others when their attempts are used
        up. Types are matched exactly. An override may bury earlier; to retry more often, raise
        `max_attempts`.
        """
        if self.exclude_errors and type(error) in self.exclude_errors:
            return False
        if self.include_errors and type(error) in self.include_errors:
            return True
        return self.is_spent(delivery.charged, delivery.message)

    def is_spent(self, charged: int, message: Message | None = None) -> bool:
        """
        Return whether the `charged`-th attempt is the last one allowed.

        The message's own limit counts if it has one, else `max_attempts`.
        """
        return 0 < self._allowed(message) <= charged

    @property
    def allowed_attempts(self) -> int:
        """The highest number of attempts; 0 means unlimited."""
        return self._allowed(None)

    def _allowed(self, message: Message | None) -> int:
        own = attempt_limit(message) if message is not None and message.headers else None
        limit = self.max_attempts if own is None else own
        return limit + (limit > 0 and self.limit_mode == LimitMode.EXCEEDED)

    def dead_copy(self, letter: DeadLetter) -> Message:
        """
        Return the copy of a letter for its dead-letter mailbox.

        The office keeps the letter itself, whatever this returns.
        """
        return to_message(letter)

    def bad_news(self, delivery: Delivery, decision: Decision, failure: Failure) -> object:
        """
        Return the body of the reply to a message that failed, to be sent as JSON.

        Called after the letter is kept, and never for a retry.
        """
        return bad_news(delivery, decision, failure)

    def disposition(self, trouble: Trouble) -> Disposition:
        """Return the consequence of a kind of trouble."""
        return self.dispositions.get(trouble) or DISPOSITIONS[trouble]

    def decide(self, situation: Situation, draw: float) -> Decision:
        """Return the decision on a delivery whose attempt has failed."""
        error = situation.error
        if isinstance(error, Signal):  # the handler has decided
            return self._routed(error.decision, situation.failure)
        return self._by_type(situation, draw) or self._by_trouble(situation, draw)

    def before(self, delivery: Delivery, now: datetime) -> Decision | None:
        """
        Return the decision on a delivery that must not run; None: run it.

        Unreadable and expired messages do not run, nor do those whose attempts were used up by
        workers that died: another attempt would kill another worker.
        """
        if delivery.unreadable:
            damaged = Bury(Reason.UNDECODABLE, delivery.unreadable)
            code = "CORRUPT" if delivery.corrupt else "MALFORMED"
            return self._unrun(damaged, Trouble.MALFORMED, code)
        if (text := self._lateness(delivery.message, now)) is not None:
            if self.disposition(Trouble.EXPIRED) == Disposition.FAIL:  # also as plain text
                return Fail(text)
            return self._unrun(Bury(Reason.EXPIRED, text), Trouble.EXPIRED, "EXPIRED")
        used = delivery.charged - 1
        if used < 1 or not self.is_spent(used, delivery.message):
            return None
        allowed = self._allowed(delivery.message)
        if last_number(delivery.history) >= delivery.attempt - 1:
            text = f"failed {used} of {allowed} attempts"
            exhausted = Bury(Reason.ATTEMPTS_EXHAUSTED, text)
            return self._unrun(exhausted, Trouble.UNKNOWN, "ATTEMPTS_EXHAUSTED")
        text = f"its worker died in attempt {used} of {allowed}"
        lost = Bury(Reason.WORKER_LOST, text)
        return self._unrun(lost, Trouble.WORKER_LOST, "WORKER_LOST")

    def dead_mailbox(self, mailbox: str, route: str | None) -> str | None:
        """Return the mailbox that a letter is copied to, if any."""
        name = route or self.dead_queue
        return name.replace(MAILBOX, mailbox) if name else None

    def _lateness(self, message: Message, now: datetime) -> str | None:
        """Return why a message has expired, or None if it has not."""
        expires_at = message.expires_at
        if expires_at is not None and expires_at <= now:
            return f"expired at {expires_at.isoformat(timespec='seconds')}"
        if self.expire_after is None or message.lineage is not None:
            return None  # a replayed message may be old
        if (now - message.sent_at).total_seconds() < self.expire_after:
            return None
        sent_at = message.sent_at.isoformat(timespec="seconds")
        return f"sent at {sent_at}, expired after {self.expire_after:g} s"

    def _by_type(self, situation: Situation, draw: float) -> Decision | None:
        kind = type(situation.error)
        if self.exclude_errors and kind in self.exclude_errors:
            return self._keep_retrying(situation, draw)
        if self.include_errors and kind in self.include_errors:
            text = f"{situation.failure.error_type} is not retried"
            return self._bury(situation.failure, text)
        return None

    def _by_trouble(self, situation: Situation, draw: float) -> Decision:
        failure = situation.failure
        match self.disposition(failure.trouble):
            case Disposition.RETRY:  # the most frequent one first
                return self._retry_or_bury(situation, draw)
            case Disposition.DEAD_LETTER:
                return self._bury(failure, f"{failure.trouble} error: {failure.code}")
            case Disposition.FAIL:
                return Fail(f"{failure.trouble} error: {failure.code}")
            case Disposition.CONTINUE:
                return Continue(failure.text)
            case Disposition.KEEP_RETRYING:
                return self._keep_retrying(situation, draw)

    def _retry_or_bury(self, situation: Situation, draw: float) -> Decision:
        delivery, failure = situation.delivery, situation.failure
        if not self.should_dead_letter(delivery, situation.error):
            return Retry(self._delay(delivery.charged, failure, draw))
        if not self.is_spent(delivery.charged, delivery.message):
            return self._bury(failure, f"the policy gave up on {failure.error_type}")
        allowed = self._allowed(delivery.message)
        text = f"failed {delivery.charged} of {allowed} attempts"
        if failure.trouble is Trouble.WORKER_LOST:
            return self._bury(failure, text)
        return self._routed(Bury(Reason.ATTEMPTS_EXHAUSTED, text), failure)

    def _keep_retrying(self, situation: Situation, draw: float) -> Decision:
        # Charged attempts do not grow here, so the delay follows all attempts.
        attempt = situation.delivery.attempt
        return Retry(self._delay(attempt, situation.failure, draw), charged=False)

    def _delay(self, attempt: int, failure: Failure, draw: float) -> float:
        wished = min(failure.retry_after or 0.0, LONGEST_WISH)
        return max(self.backoff.delay(attempt, draw), wished)

    def _bury(self, failure: Failure, text: str) -> Decision:
        reason = _REASONS.get(failure.trouble, Reason.FATAL_ERROR)
        return self._routed(Bury(reason, text), failure)

    def _unrun(self, bury: Bury, trouble: Trouble, code: str) -> Decision:
        text = bury.text
        failure = Failure(trouble=trouble, code=code, error_type="", text=text)
        return self._routed(bury, failure)

    def _routed(self, decision: Decision, failure: Failure) -> Decision:
        if not isinstance(decision, Bury) or decision.route or not self.routes:
            return decision
        to = next((route.to for route in self.routes if route.fits(failure)), None)
        return Bury(decision.reason, decision.text, to)


def _check_dispositions(given: object) -> None:
    if not isinstance(given, Mapping) or not all(
        trouble in tuple(Trouble) and what in tuple(Disposition) for trouble, what in given.items()
    ):
        raise ConfigError(
            "dispositions must map troubles to dispositions, such as "
            "{Trouble.UNKNOWN: Disposition.DEAD_LETTER}; "
            f"troubles are {', '.join(Trouble)}, dispositions {', '.join(Disposition)}; "
            f"got {given!r}."
        )


def _check_expiry(after: object) -> None:
    if after is not None and not is_seconds(after, above=True):
        raise ConfigError(f"expire_after must be > 0 seconds, or None for no limit, got {after!r}.")


def _check_routes(routes: object) -> None:
    if not isinstance(routes, tuple | list) or not all(isinstance(one, Route) for one in routes):
        raise ConfigError(
            f"routes must be a tuple of Route, got {routes!r}: write "
            '(Route(to="broken-dlq", trouble=Trouble.MALFORMED),).'
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_errors(value: object) -> bool:
    """Return whether a value is None or a set of exception classes."""
    return value is None or (
        isinstance(value, AbstractSet)
        and all(isinstance(one, type) and issubclass(one, BaseException) for one in value)
    )


class ErrorBudgetPolicy(DLQPolicy, frozen=True, kw_only=True):
    """A policy that buries early while more than `error_budget` of all attempts fail."""

    error_budget: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.error_budget <= 1:
            raise ConfigError(
                f"error_budget={self.error_budget} is not a share of all attempts: "
                "use a number from 0 to 1."
            )

    def decide(self, situation: Situation, draw: float) -> Decision:
        decision = super().decide(situation, draw)
        if isinstance(decision, Retry) and decision.charged:
            rate = situation.error_rate
            if rate > self.error_budget:
                return self._bury(
                    situation.failure,
                    f"{rate:.0%} of attempts fail; the budget is {self.error_budget:.0%}",
                )
        return decision


_TROUBLES = {
    Reason.EXPIRED: Trouble.EXPIRED,
    Reason.WORKER_LOST: Trouble.WORKER_LOST,
    Reason.UNDECODABLE: Trouble.MALFORMED,
    Reason.ID_CONFLICT: Trouble.PERMANENT,
}
_CODES = {Reason.ID_CONFLICT: "ID_CONFLICT"}
_OUTCOMES = {Trouble.MALFORMED: "failed", Trouble.PERMANENT: Reason.ID_CONFLICT.value}


def refusal(delivery: Delivery, decision: Bury | Fail, now: datetime) -> Failure:
    """Return the failure of a delivery that `policy.before` decided not to run."""
    trouble = Trouble.EXPIRED
    if isinstance(decision, Bury):
        trouble = _TROUBLES.get(decision.reason, Trouble.UNKNOWN)
    code = trouble.name if trouble is not Trouble.UNKNOWN else "ATTEMPTS_EXHAUSTED"
    if isinstance(decision, Bury):
        code = _CODES.get(decision.reason, code)
    if delivery.corrupt and trouble is Trouble.MALFORMED:
        code = "CORRUPT"
    name = "".join(part.title() for part in code.split("_"))
    return Failure(trouble=trouble, code=code, error_type=f"deadletter.{name}", text=decision.text)


def refused_history(delivery: Delivery, failure: Failure, now: datetime) -> str:
    """Return the history of a delivery that did not run, with that as its last line."""
    outcome = _OUTCOMES.get(failure.trouble, failure.trouble.value)
    attempt = attempt_of(failure, number=delivery.attempt, at=now, outcome=outcome)
    return append(delivery.history, attempt)


def last_word(decision: Decision, delivery: Delivery, failure: Failure) -> Decision:
    """
    Return the burial of a delivery that would be retried, but its broker moves it away.

    The broker counts deliveries by itself, so this attempt was the last one. Its letter is
    kept now, while its error is known.
    """
    if not delivery.moves_to or not isinstance(decision, Retry):
        return decision
    text = f"received {delivery.attempt} times, which is all its queue allows: {failure.code}"
    return Bury(Reason.ATTEMPTS_EXHAUSTED, text)


def id_conflict(message: Message) -> Bury:
    """Return the burial of a message whose key was handled before with another body."""
    key = "message id" if message.idempotency_key is None else "idempotency key"
    return Bury(
        Reason.ID_CONFLICT,
        f"its {key} was handled before with another body, so no handler was run:"
        " replay it to have it handled as well, or close it",
    )


def doom(delivery: Delivery, policy: DLQPolicy, now: datetime) -> Bury | Fail:
    """
    Return the decision on a delivery that the sweep found beyond its limit.

    The policy decides as it would for a worker. If it would retry, the limit of the mailbox
    counts.
    """
    decision: Decision | None = policy.before(delivery, now)
    if isinstance(decision, Bury | Fail):
        return decision
    return Bury(
        Reason.WORKER_LOST,
        f"its worker died in {delivery.charged - 1} attempts, which is all its mailbox allows",
    )
