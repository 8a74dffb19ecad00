"""The five systems, as data: their policies, settings and rules."""

from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.backoff import Exponential, Fixed, Linear, NoBackoff
from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.failure import Trouble
from deadletter.core.failure.classify import ErrorClassifier
from deadletter.core.failure.rules import DEFAULT, GENERAL, GRPC, HTTP, NETWORK
from deadletter.core.policy import Disposition, DLQPolicy
from deadletter.profiles.courier import COURIER
from deadletter.profiles.mailbox import AGENT
from deadletter.profiles.pipeline import PIPELINE
from deadletter.profiles.relayer import EVM

S = TypeVar("S", bound=Struct)


class Variable(Struct, frozen=True, kw_only=True):
    """A numeric environment variable, and the setting it overrides."""

    name: str
    setting: str  # dotted: policy.backoff.base
    whole: bool = False
    least: float = 0.0
    most: float = inf
    scale: float = 1.0  # 0.001 makes seconds of milliseconds

    def read(self, text: str) -> float:
        """Return the value in the unit of the setting. Raises ConfigError for an invalid number."""
        try:
            number = int(text) if self.whole else float(text)
        except ValueError:
            raise self._refusal(text) from None
        # NaN fails every comparison, so this rejects it too.
        if not (self.least <= number <= self.most and number < inf):
            raise self._refusal(text)
        return number if self.whole and self.scale == 1 else number * self.scale

    def _refusal(self, text: str) -> ConfigError:
        kind = "a whole number" if self.whole else "a number"
        limits = f"of at least {self.least:g}"
        if self.most < inf:
            limits = f"from {self.least:g} to {self.most:g}"
        return ConfigError(f"{self.name} must be {kind} {limits}, got {text!r}.")


def apply_variables(value: S, variables: Iterable[Variable], environ: Mapping[str, str]) -> S:
    """Return the settings with the variables that are set applied; others keep their value."""
    for variable in variables:
        text = environ.get(variable.name, "").strip()
        if text:
            path = variable.setting.split(".")
            value = _replaced(value, path, variable.read(text))
    return value


def _replaced(struct: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    inner = _replaced(getattr(struct, name), rest, value) if rest else value
    return replace(struct, **{name: inner})


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """Settings of a DLQ consumer; the names are those of its arguments."""

    interval: float = 0.0  # seconds between polls; 0 polls without a pause
    wait: float = 20.0  # seconds of long polling
    visibility_timeout: float = 300.0
    on_failure: float = 3600.0  # seconds a letter waits when its handler failed
    discard_failures: bool = False  # delete the letter even if its handler failed


class Retention(Struct, frozen=True, kw_only=True):
    """Retention periods in seconds; None means no limit."""

    source: float | None = None
    dead: float | None = None  # letters that are finished
    unreviewed: float | None = None  # letters that wait for people; None keeps them for ever
    ledger: float | None = None


class Profile(Struct, frozen=True, kw_only=True):
    """The settings of one system."""

    name: str
    policy: DLQPolicy
    brake: BrakePolicy | None = BrakePolicy()
    naming: str | None = None  # of the dead-letter mailbox; None: always explicit
    dlq_consumer: ConsumerSettings | None = None
    retention: Retention = Retention()
    must_run_together: bool = False  # worker and DLQ consumer, or neither
    sqs_retry: Literal["copy", "visibility"] = "copy"  # as ?retry= in sqs:// URLs
    environment: tuple[Variable, ...] = ()

    def dead_queue(self, mailbox: str, **names: str) -> str | None:
        """
        Return the dead-letter mailbox of a mailbox; None if each is named explicitly.

        `{mailbox}` and `{base}` (the mailbox without `-main`) are filled in; other parts of the
        naming, such as cluster and node, are arguments.
        """
        if self.naming is None:
            return None
        known = {"mailbox": mailbox, "base": mailbox.removesuffix("-main"), **names}
        try:
            return self.naming.format_map(known)
        except KeyError as missing:
            raise ConfigError(
                f"The {self.name} profile names dead queues {self.naming}: pass {missing}."
            ) from None

    def policy_for(self, mailbox: str, **names: str) -> DLQPolicy:
        """Return the policy with its dead-letter mailbox filled in."""
        return replace(self.policy, dead_queue=self.dead_queue(mailbox, **names))

    def with_environment(self, environ: Mapping[str, str]) -> "Profile":
        """
        Return the profile with environment variables applied. Raises ConfigError if one is
        invalid.
        """
        return apply_variables(self, self.environment, environ)

    def check_consumers(self, *, worker: bool, dlq_consumer: bool) -> None:
        """Reject starting only one of two consumers that must run together."""
        if self.must_run_together and worker != dlq_consumer:
            missing = "DLQ consumer" if worker else "worker"
            raise ConfigError(
                f"The {self.name} profile runs worker and DLQ consumer in the same "
                f"process: start the {missing} as well."
            )


# Five ways of using dead letters, as data: they differ in policy, not mechanism.
#
# relayer      transactions on SQS: permanent errors fail at once, no dead letter
# pipeline     streams through nodes: logical failures go on, infrastructure dies
# lease_queue  a queue server: only attempts and expiry count
# mailbox      request and reply: patient, dead letters named by error type
# courier      webhooks: exponential backoff, dead letters kept for 90 days

__all__ = ["OUTAGE_BRAKE", "PROFILES", "Profile"]

DAY: Final = 86_400.0

# All troubles that are NON_RETRYABLE: none of them reaches the dead-letter queue.
_FAIL_AT_ONCE: Final = {
    Trouble.PERMANENT: Disposition.FAIL,
    Trouble.LOGICAL: Disposition.FAIL,
    Trouble.MALFORMED: Disposition.FAIL,
    Trouble.LOOP: Disposition.FAIL,
    Trouble.EXPIRED: Disposition.FAIL,
}
_ONLY_COUNT: Final = {
    Trouble.PERMANENT: Disposition.RETRY,
    Trouble.LOGICAL: Disposition.RETRY,
    Trouble.LOOP: Disposition.RETRY,
    Trouble.MALFORMED: Disposition.RETRY,
}
# Bodies are decoded before the handler is asked; what it raises itself is counted.
_BY_INCLUDE_SET: Final = {**_ONLY_COUNT, Trouble.MALFORMED: Disposition.DEAD_LETTER}

RELAYER: Final = Profile(
    name="relayer",
    policy=DLQPolicy(
        max_attempts=3,
        backoff=Fixed(60.0),
        classifier=ErrorClassifier((*EVM, *GENERAL, *HTTP)),
        dispositions=_FAIL_AT_ONCE,
    ),
    brake=None,  # clients were promised an end after three attempts
    naming="{mailbox}-dlq",
    dlq_consumer=ConsumerSettings(interval=10.0, wait=10.0, discard_failures=True),
    retention=Retention(dead=4 * DAY),
    must_run_together=True,
    sqs_retry="visibility",  # SQS counts to its maxReceiveCount and moves by itself
    environment=(
        Variable(
            name="DLQ_POLL_INTERVAL_MS", setting="dlq_consumer.interval", whole=True, scale=0.001
        ),
    ),
)

OUTAGE_BRAKE: Final = BrakePolicy(quiet=False, systemic=False)
"""The brake of pipeline nodes that wait for a module that is unreachable."""

PIPELINE_NODE: Final = Profile(
    name="pipeline",
    policy=DLQPolicy(
        max_attempts=3,
        backoff=Linear(1.0, cap=DAY),
        classifier=ErrorClassifier((*PIPELINE, *GENERAL)),
    ),
    brake=None,  # an unreachable module is a dead letter; `OUTAGE_BRAKE` is the switch
    naming="dlq.{cluster}.{node}",
)

LEASE_QUEUE: Final = Profile(
    name="lease_queue",
    policy=DLQPolicy(
        max_attempts=0,  # each queue says for itself
        backoff=NoBackoff(),
        classifier=DEFAULT,
        dispositions=_ONLY_COUNT,
    ),
)

MAILBOX: Final = Profile(
    name="mailbox",
    policy=DLQPolicy(
        max_attempts=5,
        backoff=Linear(60.0, cap=900.0),
        classifier=ErrorClassifier((*AGENT, *GENERAL, *HTTP, *GRPC, *NETWORK)),
        dispositions=_BY_INCLUDE_SET,
    ),
    brake=None,  # after five deliveries it is a dead letter, whatever fails beside it
    naming="{mailbox}-dlq",
    dlq_consumer=ConsumerSettings(wait=20.0, on_failure=3600.0),
    retention=Retention(source=3 * DAY, dead=30 * DAY),
)

COURIER_GATEWAY: Final = Profile(
    name="courier",
    policy=DLQPolicy(
        max_attempts=5,
        backoff=Exponential(1.0, factor=2.0, cap=DAY, jitter=0.2),
        classifier=ErrorClassifier((*COURIER, *GENERAL, *NETWORK)),
    ),
    brake=None,  # after its attempts an event is dead, also in an outage
    naming="{base}-dlq",
    retention=Retention(dead=90 * DAY, unreviewed=90 * DAY, ledger=30 * DAY),
    environment=(
        Variable(name="RETRY_MAX_ATTEMPTS", setting="policy.max_attempts", whole=True, least=1),
        Variable(name="RETRY_BACKOFF_BASE_MS", setting="policy.backoff.base", scale=0.001),
        Variable(name="RETRY_BACKOFF_MULTIPLIER", setting="policy.backoff.factor", least=1),
        Variable(
            name="RETRY_JITTER_PERCENT", setting="policy.backoff.jitter", most=100, scale=0.01
        ),
        Variable(name="DLQ_TTL_DAYS", setting="retention.dead", least=1, scale=DAY),
        Variable(name="DLQ_TTL_DAYS", setting="retention.unreviewed", least=1, scale=DAY),
    ),
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        profile.name: profile
        for profile in (RELAYER, PIPELINE_NODE, LEASE_QUEUE, MAILBOX, COURIER_GATEWAY)
    }
)
