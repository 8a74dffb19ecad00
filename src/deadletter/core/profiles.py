"""
Five ways of using dead letters, as data: they differ in policy, not mechanism.

    relayer      transactions on SQS: permanent errors fail at once, no dead letter
    pipeline     streams through nodes: logical failures go on, infrastructure dies
    lease_queue  a queue server: only attempts and expiry count
    mailbox      request and reply: patient, dead letters named by error type
    courier      webhooks: exponential backoff, archive kept for 90 days
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .backoff import Exponential, Fixed, Linear, NoBackoff
from .brake import BrakePolicy
from .classify import ErrorClassifier
from .environment import Variable
from .failure import Trouble
from .policy import Disposition, DLQPolicy
from .profile import ConsumerSettings, Profile, Retention
from .rules import (
    AGENT,
    COURIER,
    DEFAULT,
    EVM,
    GENERAL,
    GRPC,
    HTTP,
    NETWORK,
    PIPELINE,
)

__all__ = ["PROFILES", "Profile"]

DAY: Final = 86_400.0

# A body that cannot be read names no transaction that could be marked as failed, so
# it alone is kept for people.
_FAIL_AT_ONCE: Final = {
    Trouble.PERMANENT: Disposition.FAIL,
    Trouble.LOGICAL: Disposition.FAIL,
    Trouble.LOOP: Disposition.FAIL,
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
    environment=(
        Variable(
            name="DLQ_POLL_INTERVAL_MS",
            setting="dlq_consumer.interval",
            whole=True,
            scale=0.001,
        ),
    ),
)

PIPELINE_NODE: Final = Profile(
    name="pipeline",
    policy=DLQPolicy(
        max_attempts=3,
        backoff=Linear(1.0, cap=DAY),
        classifier=ErrorClassifier((*PIPELINE, *GENERAL)),
    ),
    brake=BrakePolicy(quiet=False, systemic=False),  # bugs are dead at once
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
    naming="{mailbox}-dlq",
    dlq_consumer=ConsumerSettings(wait=20.0, on_failure=3600.0),
    retention=Retention(source=3 * DAY, dead=30 * DAY),
)

COURIER_GATEWAY: Final = Profile(
    name="courier",
    policy=DLQPolicy(
        max_attempts=5,
        backoff=Exponential(1.0, factor=2.0, cap=DAY, jitter=0.2),
        classifier=ErrorClassifier((*COURIER, *GENERAL, *HTTP, *NETWORK)),
    ),
    naming="{base}-dlq",
    retention=Retention(dead=90 * DAY, ledger=30 * DAY),
    environment=(
        Variable(
            name="RETRY_MAX_ATTEMPTS",
            setting="policy.max_attempts",
            whole=True,
            least=1,
        ),
        Variable(
            name="RETRY_BACKOFF_BASE_MS", setting="policy.backoff.base", scale=0.001
        ),
        Variable(
            name="RETRY_BACKOFF_MULTIPLIER", setting="policy.backoff.factor", least=1
        ),
        Variable(
            name="RETRY_JITTER_PERCENT",
            setting="policy.backoff.jitter",
            most=100,
            scale=0.01,
        ),
        Variable(name="DLQ_TTL_DAYS", setting="retention.dead", least=1, scale=DAY),
    ),
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        profile.name: profile
        for profile in (RELAYER, PIPELINE_NODE, LEASE_QUEUE, MAILBOX, COURIER_GATEWAY)
    }
)
