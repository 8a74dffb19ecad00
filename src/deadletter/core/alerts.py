"""
Alerts as data: conditions, times and targets.

`Alerts` is the `[alerts]` section of the settings, for alerts that the server sends. `RULES`
and `ALARMS` are rules for Prometheus and CloudWatch. All of them watch arrivals, not the depth
of a queue: a consumer that empties a dead-letter queue every few seconds keeps its depth at
zero.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from .brake import BrakeWindow, WindowState, merged
from .campaign import Unsettled
from .grouping import HIDDEN, is_overflow
from .letter import Group, GroupStatus, LetterHead
from .text import cut, many, plain_line

Text = Annotated[str, Meta(min_length=1, title="a text")]
Number = Annotated[int, Meta(ge=0, title="a whole number, 0 or more")]
Seconds = Annotated[float, Meta(ge=0, le=1e7, title="seconds, 0 to 1e7")]


class TargetKind(StrEnum):
    """The kinds of alert targets."""

    WEBHOOK = "webhook"  # JSON, signed
    SLACK = "slack"  # what Slack, Mattermost and others take
    EMAIL = "email"


class AlertTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that alerts are sent to."""

    kind: TargetKind
    to: Text  # a URL, or addresses between commas
    secret: Text | None = None  # a webhook is signed with; whsec_ and base64, or a text
    server: Text = "smtp://127.0.0.1:25"  # that takes e-mail; smtps:// and user:password
    sender: Text = "deadletter@localhost"  # of e-mail


class Alerts(Struct, frozen=True, kw_only=True):
    """Settings of the alerts that the server sends; without targets, it sends none."""

    every: Seconds = 30.0  # seconds between two checks
    new_groups: bool = True  # alert on groups that are new or regressed
    outages: bool = True  # alert on mailboxes that the brake holds back
    growing: Number = 100  # alert on this number of deaths in one group; 0: never
    growing_within: Seconds = 300.0  # ...within this number of seconds
    unreviewed: Seconds = 86_400.0  # alert on letters that nobody reviewed for this long; 0: never
    unsettled: Seconds = 3_600.0  # alert on replayed letters without an outcome; 0: never
    again: Seconds = 3_600.0  # repeat an alert that goes on after this number of seconds
    targets: tuple[AlertTarget, ...] = ()


class Severity(StrEnum):
    """The severities of an alert."""

    PAGE = "page"  # wake somebody
    WARN = "warning"  # during the day


class AlertRule(Struct, frozen=True, kw_only=True):
    """An alert rule for Prometheus."""

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
        summary="DLQ depth high for {{ $labels.node_id }}",
    ),
    AlertRule(
        name="DLQGrowing",
        expr="rate(pipestream_dlq_messages_total[5m]) > 1",
        lasting="10m",
        summary="DLQ growing for {{ $labels.node_id }}",
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
        summary="{{ $value | humanize }} messages of {{ $labels.source }} died within 5 minutes",
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
"""The namespace of our metrics in CloudWatch."""


class CloudAlarm(Struct, frozen=True, kw_only=True):
    """An alarm for CloudWatch: more than `threshold` within `period` seconds."""

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
"""
An alarm on the depth of an SQS dead-letter queue; a consumer may empty it before the alarm sees
it.
"""


# Alerts as pure functions of the state of the office.
#
# An alert never contains anything from a message: it passes through chat rooms and
# mail servers.

MEMORY: Final = timedelta(days=30)
"""How long a sent alert is remembered."""

_LONGEST: Final = 200  # characters of a name


class AlertKind(StrEnum):
    """The kinds of alerts."""

    NEW_GROUP = "new-group"
    REGRESSED = "regressed-group"
    GROWING = "growing-group"
    OVERFLOW = "overflow-group"
    UNREVIEWED = "unreviewed-letters"
    HELD_BACK = "mailbox-held-back"
    UNSETTLED = "unsettled-letters"
    TEST = "test"  # somebody tries whether a target takes alerts


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One alert. Its `id` is the same on every server, so it is sent once."""

    id: str
    kind: AlertKind
    text: str
    source: str
    count: int
    first_seen: datetime
    last_seen: datetime
    group: str = ""  # fingerprint
    error_type: str = ""
    round: int = 0  # repetitions before this one


def about_groups(
    groups: Sequence[Group], grown: Mapping[str, int], alerts: Alerts, now: datetime
) -> list[Alert]:
    """Return alerts about groups; `grown` counts the deaths of each within the window."""
    found: list[Alert] = []
    for group in _kinds_in_turn(groups):
        if group.standing.status in HIDDEN:
            continue
        if alerts.new_groups and (news := _news(group, now)) is not None:
            found.append(news)
        deaths = grown.get(group.fingerprint, 0)
        if alerts.growing and deaths >= alerts.growing:
            found.append(_growing(group, deaths, alerts, now))
    return found


def about_outages(windows: Iterable[BrakeWindow], now: datetime) -> list[Alert]:
    """Return alerts about mailboxes with an open brake, one for each opening."""
    return [
        Alert(
            id=f"{AlertKind.HELD_BACK}:{one.id}",
            kind=AlertKind.HELD_BACK,
            text=f"{_shown(one.mailbox)} is held back by the brake ({one.kind}): "
            f"{plain_line(cut(one.text, 2 * _LONGEST))}",
            source=one.mailbox,
            count=one.held,
            first_seen=one.opened_at,
            last_seen=one.seen_at,
        )
        for one in merged(windows)
        if one.state(now) is WindowState.OPEN
    ]


def about_waiting(
    heads: Sequence[LetterHead],
    oldest: Mapping[str, datetime],
    alerts: Alerts,
    now: datetime,
    *,
    is_all: bool,
) -> list[Alert]:
    """
    Return alerts about letters that nobody has reviewed for too long.

    `heads` are all of them, or some of sources whose `oldest` is known.
    """
    counts = Counter(head.source for head in heads)
    last = {source: begin for source, begin in oldest.items() if source in counts}
    for head in heads:
        if head.source in last:
            last[head.source] = max(last[head.source], head.dead_at)
    return [
        Alert(
            id=f"{AlertKind.UNREVIEWED}:{source}",
            kind=AlertKind.UNREVIEWED,
            text=f"{'' if is_all else 'At least '}{_letters(counts[source])} of "
            f"{_shown(source)} waited for more than {_long(alerts.unreviewed)} "
            "and nobody has looked",
            source=source,
            count=counts[source],
            first_seen=oldest[source],
            last_seen=last[source],
            round=_round(oldest[source], alerts, now),
        )
        for source in last
    ]


def about_unsettled(waits: Sequence[Unsettled], alerts: Alerts, now: datetime) -> list[Alert]:
    """Return alerts about replayed letters that wait too long for an outcome."""
    begin = now - timedelta(seconds=alerts.unsettled)
    return [
        Alert(
            id=f"{AlertKind.UNSETTLED}:{one.source}",
            kind=AlertKind.UNSETTLED,
            text=f"{_letters(one.letters)} of {_shown(one.source)} sent back without an"
            f" outcome, for more than {_long(alerts.unsettled)}: is a worker running?",
            source=one.source,
            count=one.letters,
            first_seen=one.since,
            last_seen=now,
            round=_round(one.since, alerts, now),
        )
        for one in waits
        if one.since is not None and one.since < begin
    ]


def _kinds_in_turn(groups: Sequence[Group]) -> list[Group]:
    """Order groups by turns: first one of each source, error and frame, then a second of each."""
    turns: Counter[tuple[str, str, str]] = Counter()
    placed: list[tuple[int, Group]] = []
    for group in groups:
        kind = group.source, group.error_type, group.frame
        placed.append((turns[kind], group))
        turns[kind] += 1
    return [group for _, group in sorted(placed, key=lambda one: one[0])]


def _overflow(group: Group, now: datetime) -> Alert | None:
    if group.last_seen <= now - MEMORY:
        return None
    text = (
        f"{_what(group)} has too many different error texts: {_letters(group.total)} "
        "of it are in one overflow group"
    )
    day = f"{group.last_seen:%Y%m%d}"
    return _of(group, AlertKind.OVERFLOW, text, group.total, said=day)


def _news(group: Group, now: datetime) -> Alert | None:
    if is_overflow(group.fingerprint):
        return _overflow(group, now)
    status, since = group.standing.status, group.standing.since
    if status is GroupStatus.REGRESSED and since is not None:
        if since <= now - MEMORY:
            return None
        said = f"{since:%Y%m%dT%H%M%S}"
        text = f"{_what(group)} was resolved, and happens again"
        return _of(group, AlertKind.REGRESSED, text, group.total, said=said)
    if status is GroupStatus.NEW and group.first_seen > now - MEMORY:
        text = f"{_what(group)} is new: {_deaths(group.total)}"
        return _of(group, AlertKind.NEW_GROUP, text, group.total)
    return None


def _growing(group: Group, deaths: int, alerts: Alerts, now: datetime) -> Alert:
    within = _long(alerts.growing_within)
    text = f"{_what(group)} grows: {_deaths(deaths)} within {within}"
    number = _round(group.first_seen, alerts, now)
    return _of(group, AlertKind.GROWING, text, deaths, number=number)


def _of(
    group: Group, kind: AlertKind, text: str, count: int, *, said: str = "", number: int = 0
) -> Alert:
    return Alert(
        id=":".join(filter(None, (kind, group.fingerprint, said))),
        kind=kind,
        text=text,
        source=group.source,
        count=count,
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        group=group.fingerprint,
        error_type=_shown(group.error_type),
        round=number,
    )


def _round(begin: datetime, alerts: Alerts, now: datetime) -> int:
    """Return how often the alert could have been repeated since it began."""
    seconds = max(0.0, (now - begin).total_seconds())
    return int(seconds / max(alerts.again, 60.0))


def _what(group: Group) -> str:
    return f"{_shown(group.error_type) or 'A failure'} in {_shown(group.source)}"


def _shown(name: str) -> str:
    return plain_line(cut(name, _LONGEST))


def _letters(count: int) -> str:
    return many(count, "letter")


def _deaths(count: int) -> str:
    return f"{count:,} {'death' if count == 1 else 'deaths'}"


def _long(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}{'' if seconds == size else 's'}"
    return f"{seconds:g} seconds"
