"""
How patient to be, and with what: the one place where fates are decided.

    failure -> DLQPolicy.decide() -> Decision

Everything is an argument, time and chance included; nothing is done here.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from .attempts import last_number
from .backoff import Backoff, Exponential
from .classify import ErrorClassifier
from .decision import Bury, Continue, Decision, Fail, Reason, Retry
from .errors import ConfigError, Signal
from .failure import Failure, Trouble
from .letter import DeadLetter
from .letter_mail import to_message
from .message import Delivery, Message
from .reply import bad_news
from .routes import MAILBOX, Route, check_template
from .rules import DEFAULT

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
"""A second, then four times as long each time, two hours at most."""

LONGEST_WISH: Final = 12 * 3600.0  # a Retry-After beyond this is not believed


class LimitMode(StrEnum):
    """When the attempts are used up."""

    REACHED = "reached"  # the max-th failure is the last
    EXCEEDED = "exceeded"  # one more than max is needed


class Disposition(StrEnum):
    """What a kind of trouble leads to."""

    RETRY = "retry"  # until the attempts are used up
    DEAD_LETTER = "dead-letter"
    FAIL = "fail"  # record as failed and delete
    CONTINUE = "continue"  # note the error and go on
    KEEP_RETRYING = "keep-retrying"  # bounded only by expiry


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
    """All there is to know when a fate is decided."""

    delivery: Delivery
    failure: Failure
    error: BaseException
    error_rate: float = 0.0  # share of recent attempts that failed, 0 to 1


class DLQPolicy(Struct, frozen=True, kw_only=True):
    """
    How patient to be, and with what.

    Subclass it and override `should_dead_letter` for rules of your own, `dead_copy`
    for a dead-letter mailbox whose readers know a format of their own, `bad_news`
    for askers who do.
    """

    max_attempts: int = 10  # 0 is unlimited
    limit_mode: LimitMode = LimitMode.REACHED
    backoff: Backoff = PATIENT
    classifier: ErrorClassifier = DEFAULT
    dispositions: Mapping[Trouble, Disposition] = DISPOSITIONS  # what differs from it
    include_errors: frozenset[type[BaseException]] | None = None
    exclude_errors: frozenset[type[BaseException]] | None = None
    expire_after: float | None = None  # seconds since it was sent; then it is too late
    dead_queue: str | None = None  # copies go there; {mailbox} is filled in
    routes: tuple[Route, ...] = ()  # ...or others, by error; the first that fits

    def __post_init__(self) -> None:
        if not _is_count(self.max_attempts):
            raise ConfigError(
                f"max_attempts={self.max_attempts!r} cannot be: use 1 or more, "
                "or 0 to try for ever."
            )
        if self.limit_mode not in tuple(LimitMode):
            raise ConfigError(
                f"limit_mode={self.limit_mode!r} cannot be: use "
                f"{' or '.join(LimitMode)}."
            )
        if not callable(getattr(self.backoff, "delay", None)):
            raise ConfigError(
                f"backoff={self.backoff!r} cannot be: use NoBackoff(), Fixed(5.0), "
                "Linear(5.0) or Exponential(1.0)."
            )
        if not isinstance(self.classifier, ErrorClassifier):
            raise ConfigError(
                f"classifier={self.classifier!r} cannot be: write "
                "DEFAULT.extended(Rule(...)), or ErrorClassifier((Rule(...),)) for "
                "rules of your own alone."
            )
        _check_dispositions(self.dispositions)
        for name in ("include_errors", "exclude_errors"):
            if not _are_errors(getattr(self, name)):
                raise ConfigError(
                    f"{name} is a set of exception classes: write frozenset("
                    "{ValueError}), and nothing that is not one."
                )
        both = (self.include_errors or frozenset()) & (
            self.exclude_errors or frozenset()
        )
        if both:
            names = ", ".join(sorted(error.__qualname__ for error in both))
            raise ConfigError(
                f"{names} cannot be both in include_errors (a dead letter at once) "
                "and exclude_errors (never one): take it out of one of them."
            )
        if self.expire_after is not None and not self.expire_after > 0:
            raise ConfigError(
                f"expire_after={self.expire_after} cannot be: use seconds above 0, or "
                "None for no limit."
            )
        if self.dead_queue is not None:
            check_template("dead_queue", self.dead_queue)

    def check_mailbox(self, mailbox: str) -> None:
        """Refuse to be the policy of a mailbox that would be its own dead queue."""
        for name in (self.dead_queue, *(route.to for route in self.routes)):
            if name is not None and name.replace(MAILBOX, mailbox) == mailbox:
                raise ConfigError(
                    f"mailbox {mailbox!r} cannot be its own dead-letter mailbox: "
                    f"name another one, such as '{mailbox}-dlq'."
                )

    def should_dead_letter(self, delivery: Delivery, error: BaseException) -> bool:
        """
        Whether a delivery that may be retried should be given up instead.

        In this order: excluded errors never, included ones at once, the others
        when their attempts are used up. Types are matched exactly. An override
        may give up earlier; to be more patient, raise `max_attempts`.
        """
        if self.exclude_errors and type(error) in self.exclude_errors:
            return False
        if self.include_errors and type(error) in self.include_errors:
            return True
        return self.is_spent(delivery.charged)

    def is_spent(self, charged: int) -> bool:
        """Whether a failure of the `charged`-th attempt is the last one allowed."""
        # Asked for every failure, and the answer is mostly no.
        return 0 < self.max_attempts <= charged >= self.allowed_attempts

    @property
    def allowed_attempts(self) -> int:
        """How often a message is tried at most; 0 when there is no limit."""
        one_more = self.max_attempts > 0 and self.limit_mode == LimitMode.EXCEEDED
        return self.max_attempts + one_more

    def dead_copy(self, letter: DeadLetter) -> Message:
        """
        The message that stands for a letter in its dead-letter mailbox.

        The letter itself is kept in the office, whatever this makes of it.
        """
        return to_message(letter)

    def bad_news(
        self, delivery: Delivery, decision: Decision, failure: Failure
    ) -> object:
        """
        What the reply to a message says that ended badly, to be sent as JSON.

        Asked once it has: after the letter is kept, and never for a retry.
        """
        return bad_news(delivery, decision, failure)

    def disposition(self, trouble: Trouble) -> Disposition:
        """What a kind of trouble leads to: as told, else as usual."""
        return self.dispositions.get(trouble) or DISPOSITIONS[trouble]

    def decide(self, situation: Situation, draw: float) -> Decision:
        """Say what becomes of a delivery whose attempt has failed."""
        error = situation.error
        if isinstance(error, Signal):  # the handler knows better than the policy
            return self._routed(error.decision, situation.failure)
        return self._by_type(situation, draw) or self._by_trouble(situation, draw)

    def before(self, delivery: Delivery, now: datetime) -> Decision | None:
        """
        Say what becomes of a delivery that must not be run at all.

        What cannot be read, expired messages, and those whose attempts were used up
        by workers that died over them: running them again would only kill another.
        """
        if delivery.unreadable:
            damaged = Bury(Reason.UNDECODABLE, delivery.unreadable)
            code = "CORRUPT" if delivery.corrupt else "MALFORMED"
            return self._unrun(damaged, Trouble.MALFORMED, code)
        if (text := self._lateness(delivery.message, now)) is not None:
            if self.disposition(Trouble.EXPIRED) is Disposition.FAIL:
                return Fail(text)
            return self._unrun(Bury(Reason.EXPIRED, text), Trouble.EXPIRED, "EXPIRED")
        used = delivery.charged - 1
        if used < 1 or not self.is_spent(used):
            return None
        if last_number(delivery.history) >= delivery.attempt - 1:
            text = f"failed {used} of {self.allowed_attempts} attempts"
            exhausted = Bury(Reason.ATTEMPTS_EXHAUSTED, text)
            return self._unrun(exhausted, Trouble.UNKNOWN, "ATTEMPTS_EXHAUSTED")
        text = f"its worker died in attempt {used} of {self.allowed_attempts}"
        lost = Bury(Reason.WORKER_LOST, text)
        return self._unrun(lost, Trouble.WORKER_LOST, "WORKER_LOST")

    def dead_mailbox(self, mailbox: str, route: str | None) -> str | None:
        """The mailbox a letter is copied to, if any."""
        name = route or self.dead_queue
        return name.replace(MAILBOX, mailbox) if name else None

    def _lateness(self, message: Message, now: datetime) -> str | None:
        """Why a message is of no use any more, if it is not."""
        expires_at = message.expires_at
        if expires_at is not None and expires_at <= now:
            return f"expired at {expires_at.isoformat(timespec='seconds')}"
        if self.expire_after is None or message.lineage is not None:
            return None  # what is replayed was old already when somebody wanted it
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
            case Disposition.RETRY:  # first: it is by far the most frequent
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
        if not self.is_spent(delivery.charged):
            return self._bury(failure, f"the policy gave up on {failure.error_type}")
        text = f"failed {delivery.charged} of {self.allowed_attempts} attempts"
        if failure.trouble is Trouble.WORKER_LOST:
            return self._bury(failure, text)
        return self._routed(Bury(Reason.ATTEMPTS_EXHAUSTED, text), failure)

    def _keep_retrying(self, situation: Situation, draw: float) -> Decision:
        # Charged attempts stand still here, so patience grows with all of them.
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
        trouble in tuple(Trouble) and what in tuple(Disposition)
        for trouble, what in given.items()
    ):
        raise ConfigError(
            f"dispositions={given!r} cannot be: write "
            "{Trouble.UNKNOWN: Disposition.DEAD_LETTER}, with one of "
            f"{', '.join(Disposition)} for any of {', '.join(Trouble)}."
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _are_errors(value: object) -> bool:
    """Whether it is None, or a set that an error's type can be looked up in."""
    return value is None or (
        isinstance(value, AbstractSet)
        and all(
            isinstance(one, type) and issubclass(one, BaseException) for one in value
        )
    )


class ErrorBudgetPolicy(DLQPolicy, frozen=True, kw_only=True):
    """Gives up early while more than `error_budget` of all attempts fail."""

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
                    f"{rate:.0%} of attempts fail; the budget is "
                    f"{self.error_budget:.0%}",
                )
        return decision
