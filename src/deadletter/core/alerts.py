"""
Alerts as data: what people are told of, when, and where.

`Alerts` is the `[alerts]` section of the settings, for the service's own alerts.
`RULES` and `ALARMS` are what Prometheus and CloudWatch are to watch for. All of them
look at what arrives: where a consumer empties a dead-letter queue every few seconds,
its depth never leaves zero.
"""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

Text = Annotated[str, Meta(min_length=1, title="a text")]
Number = Annotated[int, Meta(ge=0, title="a whole number, 0 or more")]
Seconds = Annotated[float, Meta(ge=0, le=1e7, title="seconds, 0 to 1e7")]


class TargetKind(StrEnum):
    """How people are told."""

    WEBHOOK = "webhook"  # JSON, signed
    SLACK = "slack"  # what Slack, Mattermost and others take
    EMAIL = "email"


class AlertTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somewhere alerts are sent."""

    kind: TargetKind
    to: Text  # a URL, or addresses between commas
    secret: Text | None = None  # a webhook is signed with; whsec_ and base64, or a text
    server: Text = (
        "smtp://127.0.0.1:25"  # that takes e-mail; smtps:// and user:password
    )
    sender: Text = "deadletter@localhost"  # of e-mail


class Alerts(Struct, frozen=True, kw_only=True):
    """What the service itself tells people of; nothing without a target."""

    every: Seconds = 30.0  # seconds between two looks
    new_groups: bool = True  # tell of groups that are new, or regressed
    outages: bool = True  # tell of mailboxes that the brake holds back
    growing: Number = 100  # deaths of one group that are too many; 0: never tell
    growing_within: Seconds = 300.0  # ...in so many seconds
    unreviewed: Seconds = 86_400.0  # a letter nobody looked at for so long; 0: never
    unsettled: Seconds = 3_600.0  # a replayed letter without an outcome; 0: never
    again: Seconds = 3_600.0  # what goes on is told again after so many seconds
    targets: tuple[AlertTarget, ...] = ()


class Severity(StrEnum):
    """How much of a hurry there is."""

    PAGE = "page"  # wake somebody
    WARN = "warning"  # during the day


class AlertRule(Struct, frozen=True, kw_only=True):
    """What Prometheus is to watch for."""

    name: str
    expr: str
    lasting: str = ""  # how long it must be so: 5m
    severity: Severity = Severity.WARN
    summary: str
    description: str = ""


RULES: Final = (
    AlertRule(
        name="DLQDepthHigh",
        expr="pipestream_dlq_depth > 100",
        lasting="5m",
        summary="DLQ depth of node {{ $labels.node_id }} is {{ $value }}",
    ),
    AlertRule(
        name="DLQGrowing",
        expr="rate(pipestream_dlq_messages_total[5m]) > 1",
        lasting="10m",
        summary="DLQ of node {{ $labels.node_id }} is growing",
    ),
    AlertRule(
        name="DeadLetterNotKept",
        expr="increase(dlq_dead_letter_failures_total[5m]) > 0",
        severity=Severity.PAGE,
        summary="{{ $labels.instance }} cannot keep dead letters",
        description="Nothing is lost: messages stay where they are. See /health of it.",
    ),
    AlertRule(
        name="MailboxHeldBack",
        expr="max by (mailbox) (dlq_breaker_state) > 0",
        lasting="1m",
        severity=Severity.PAGE,
        summary="Nearly everything in {{ $labels.mailbox }} fails, and it is held back",
        description="Nothing is lost or buried. `dlq outages` says why.",
    ),
    AlertRule(
        name="DeadLetterGroupNew",
        expr="max(increase(dlq_new_groups_total[10m])) > 0",
        summary="Something fails that has not failed before",
        description="`dlq groups --status new` shows what.",
    ),
    AlertRule(
        name="DeadLetterGroupOverflow",
        expr="max by (source) (increase(dlq_overflow_arrivals_total[10m])) > 0",
        summary="{{ $labels.source }} fails with too many different error texts",
        description="`dlq groups` shows them as one overflow group.",
    ),
    AlertRule(
        name="DeadLettersArriving",
        expr="max by (source) (increase(dlq_arrivals_total[10m])) > 0",
        summary="Messages of {{ $labels.source }} die",
    ),
    AlertRule(
        name="DeadLettersGrowing",
        expr="max by (source) (increase(dlq_arrivals_total[5m])) > 100",
        severity=Severity.PAGE,
        summary="{{ $value | humanize }} messages of {{ $labels.source }} "
        "died within 5 minutes",
    ),
    AlertRule(
        name="DeadLettersUnreviewed",
        expr="max by (source) (dlq_oldest_unreviewed_age_seconds) > 86400",
        lasting="5m",
        summary="Dead letters of {{ $labels.source }} have waited for somebody for "
        "{{ $value | humanizeDuration }}",
    ),
    AlertRule(
        name="DeadLettersUnsettled",
        expr="max by (source) (dlq_oldest_unsettled_age_seconds) > 3600",
        lasting="5m",
        summary="Replayed letters of {{ $labels.source }} have waited for an outcome "
        "for {{ $value | humanizeDuration }}",
        description="`dlq list is:replaying` shows them. Is a worker running?",
    ),
    AlertRule(
        name="DeadLetterMismatch",
        expr="max(dlq_reconcile_mismatch) > 0",
        lasting="10m",
        severity=Severity.PAGE,
        summary="{{ $value }} messages are missing or too many",
        description="`dlq verify` says in which mailbox.",
    ),
    AlertRule(
        name="DeadLetterOfficeDown",
        expr="max(dlq_office_up) == 0",
        lasting="2m",
        severity=Severity.PAGE,
        summary="The office of dead letters does not answer",
    ),
)

NAMESPACE: Final = "deadletter"
"""Of our metrics in CloudWatch."""


class CloudAlarm(Struct, frozen=True, kw_only=True):
    """What CloudWatch is to watch for: more than `threshold` in `period` seconds."""

    name: str
    metric: str
    about: str
    statistic: str = "Sum"
    period: int = 60
    periods: int = 1
    threshold: float = 0.0
    namespace: str = NAMESPACE
    dimension: str | None = "Source"  # by which there is one alarm for each mailbox


ALARMS: Final = (
    CloudAlarm(
        name="dead-letters-arrive",
        metric="MessagesDeadLettered",
        about="Messages became dead letters.",
    ),
    CloudAlarm(
        name="dead-letters-wait",
        metric="OpenLetters",
        statistic="Maximum",
        about="Dead letters need somebody.",
    ),
    CloudAlarm(
        name="dead-letters-not-kept",
        metric="DeadLetterFailures",
        about="Dead letters could not be kept. Messages stay where they are.",
        dimension=None,
    ),
)

DEPTH: Final = CloudAlarm(
    name="queue-not-empty",
    metric="ApproximateNumberOfMessagesVisible",
    statistic="Maximum",
    namespace="AWS/SQS",
    dimension="QueueName",
    about="Messages lie in a dead-letter queue.",
)
"""For a dead-letter queue of SQS itself; a consumer may empty it before it is seen."""
