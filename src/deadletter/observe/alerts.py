"""
Alerts of the service itself: it looks at the office, and notifies people of changes.

Any number of servers may do so for one office. A server claims each alert in the ledger,
for each target, before it sends it, so that people receive it once. If sending fails, it
releases the claim and a server tries again. A server that dies between sending and
recording it causes a second notification.
"""

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from deadletter.core.alerts import (
    ALARMS,
    DEPTH,
    MEMORY,
    RULES,
    Alert,
    AlertRule,
    Alerts,
    AlertTarget,
    CloudAlarm,
    about_groups,
    about_outages,
    about_unsettled,
    about_waiting,
)
from deadletter.core.events import Alerted, AlertFailed, Observer
from deadletter.core.grouping import HIDDEN
from deadletter.core.letter import Group, State
from deadletter.core.query import All, Op, Term, instant, parse
from deadletter.ports import Clock, Ledger, LedgerClaim, LedgerKey, LedgerState, LetterStore

from .notifications import SHOWN, Notice, NotificationFailed, Notifier, notifier_for
from .observers import Arrivals
from .waiting import oldest_pending, unsettled

GROUPS: Final = 1_000  # latest groups that are checked
WINDOWS: Final = 1_000  # latest openings of brakes that are checked
WAITING: Final = 500  # unreviewed letters that are checked, the youngest of those too old
SOURCES: Final = 50  # sources of unreviewed letters that are checked
LEASE: Final = 180.0  # seconds to send a notice
PAUSES: Final = (0.0, 1.0, 5.0)  # seconds before each attempt to send
MOST_UNSENT: Final = 1_000  # alerts kept for a target that is unavailable
_PENDING: Final = parse(f"is:{State.PENDING}")


class Alerting:
    """The alerts of one office: checks it and notifies people."""

    def __init__(
        self,
        alerts: Alerts,
        store: LetterStore,
        ledger: Ledger | None,
        *,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self._alerts = alerts
        self._store = store
        self._clock = clock
        since = clock.now() - timedelta(seconds=alerts.growing_within)
        self._arrivals = Arrivals(since)
        self._grown: deque[tuple[datetime, str, int]] = deque()
        self._posts = [
            _Post(target, notifier_for(target), ledger, clock, observe) for target in alerts.targets
        ]

    async def look(self) -> None:
        """Check the office once, and send new alerts; raise BackendError if it is unavailable."""
        now = self._clock.now()
        groups = await self._store.groups(only_open=False, limit=GROUPS)
        found = about_groups(groups, self._growth(groups, now), self._alerts, now)
        if self._alerts.outages:
            found += about_outages(await self._store.windows(limit=WINDOWS), now)
        if self._alerts.unreviewed:
            found += await self._unreviewed(now)
        if self._alerts.unsettled:
            found += about_unsettled(await unsettled(self._store), self._alerts, now)
        await asyncio.gather(*(post.notify(found) for post in self._posts))

    def _growth(self, groups: Sequence[Group], now: datetime) -> dict[str, int]:
        """Return the deaths of each group within the window, as far as they were seen."""
        for one in self._arrivals.look(groups):
            self._grown.append((now, one.group.fingerprint, one.count))
        begin = now - timedelta(seconds=self._alerts.growing_within)
        while self._grown and self._grown[0][0] < begin:
            self._grown.popleft()
        grown: dict[str, int] = {}
        for _, name, count in self._grown:
            grown[name] = grown.get(name, 0) + count
        return grown

    async def _unreviewed(self, now: datetime) -> list[Alert]:
        begin = now - timedelta(seconds=self._alerts.unreviewed)
        old = Term("until", Op.IS, (instant(begin),))
        page = await self._store.find(All((_PENDING, old)), limit=WAITING)
        if not page.heads:
            return []
        quiet = await self._store.groups(statuses=HIDDEN, limit=GROUPS)
        hidden = frozenset(group.fingerprint for group in quiet)
        heads = [head for head in page.heads if head.fingerprint not in hidden]
        sources = sorted({head.source for head in heads})[:SOURCES]
        oldest = {
            source: await oldest_pending(self._store, source, now) or begin for source in sources
        }
        is_all = page.after is None
        return about_waiting(heads, oldest, self._alerts, now, is_all=is_all)


class _Post:
    """One target: the alerts it received, and those still to be sent."""

    def __init__(
        self,
        target: AlertTarget,
        notifier: Notifier,
        ledger: Ledger | None,
        clock: Clock,
        observe: Observer,
    ) -> None:
        digest = hashlib.sha256(target.to.encode()).hexdigest()[:16]
        self._mailbox = f"alerts {target.kind} {digest}"
        self._notifier = notifier
        self._ledger = ledger
        self._clock = clock
        self._observe = observe
        self._unsent: dict[str, Alert] = {}
        self._sent: dict[tuple[str, int], None] = {}  # if there is no ledger

    async def notify(self, alerts: Sequence[Alert]) -> None:
        """Send alerts that no server has sent yet; keep those that fail for later."""
        due = self._unsent | {alert.id: alert for alert in alerts}
        keys = [LedgerKey(self._mailbox, alert.id, alert.round) for alert in due.values()]
        claims = await self._claim(keys)
        mine = [due[claim.key.key] for claim in claims if claim.mine]
        self._unsent.clear()
        if not mine:
            return
        ended = LedgerState.FAILED
        try:
            if await self._try(mine):
                ended = LedgerState.PROCESSED
            else:
                self._unsent = {alert.id: alert for alert in mine[:MOST_UNSENT]}
        finally:
            await self._finish([claim for claim in claims if claim.mine], ended)

    async def _try(self, alerts: Sequence[Alert]) -> bool:
        notice = self._notice(alerts)
        name, count = self._notifier.kind.value, len(alerts)
        why = ""
        for pause in PAUSES:
            await asyncio.sleep(pause)
            try:
                await self._notifier.notify(notice)
            except NotificationFailed as error:
                why = str(error)
            else:
                self._observe(Alerted(mailbox="", target=name, alerts=count))
                return True
        self._observe(AlertFailed(mailbox="", target=name, alerts=count, text=why))
        return False

    def _notice(self, alerts: Sequence[Alert]) -> Notice:
        names = "\n".join(sorted(f"{alert.id} {alert.round}" for alert in alerts))
        return Notice(
            id=hashlib.sha256(f"{self._mailbox}\n{names}".encode()).hexdigest()[:32],
            at=self._clock.now(),
            alerts=tuple(alerts[:SHOWN]),
            more=len(alerts[SHOWN:]),
        )

    async def _claim(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerClaim]:
        if not keys:
            return []
        if self._ledger is not None:
            return await self._ledger.begin(keys, lease=LEASE)
        return [
            LedgerClaim(key, (key.key, key.generation) not in self._sent, LedgerState.PROCESSING)
            for key in keys
        ]

    async def _finish(self, claims: Sequence[LedgerClaim], ended: LedgerState) -> None:
        if self._ledger is not None:
            ttl = 2 * MEMORY.total_seconds()
            await self._ledger.finish([(claim, ended) for claim in claims], ttl=ttl)
        elif ended is LedgerState.PROCESSED:
            for claim in claims:
                self._sent[claim.key.key, claim.key.generation] = None
            for old in list(self._sent)[: -10 * GROUPS]:
                del self._sent[old]


_LONGEST: Final = 1_024  # characters of a dimension's value


def alarms(
    *, sources: Sequence[str] = (), queues: Sequence[str] = (), topic: str | None = None
) -> list[dict[str, Any]]:
    """Return the alarms as `put-metric-alarm` takes them."""
    wanted = [
        _alarm(alarm, name, topic)
        for alarm in ALARMS
        for name in (sources if alarm.dimension else ("",))
    ]
    return wanted + [_alarm(DEPTH, queue, topic) for queue in queues]


def dimension(name: str) -> str:
    """
    Return a name in the form that CloudWatch accepts: ASCII, bounded, without a leading colon.

    CloudWatch rejects all numbers of a request with an invalid name.
    """
    plain = name.encode("ascii", "backslashreplace").decode()
    escaped = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in plain)
    if not escaped.strip() or escaped.startswith(":"):
        escaped = f"\\{escaped}"
    return escaped[:_LONGEST]


def _alarm(alarm: CloudAlarm, name: str, topic: str | None) -> dict[str, Any]:
    dimensions = [{"Name": alarm.dimension, "Value": dimension(name)}] if alarm.dimension else []
    return {
        "AlarmName": f"deadletter-{alarm.name}{f'-{name}' if name else ''}",
        "AlarmDescription": alarm.about,
        "Namespace": alarm.namespace,
        "MetricName": alarm.metric,
        "Dimensions": dimensions,
        "Statistic": alarm.statistic,
        "Period": alarm.period,
        "EvaluationPeriods": alarm.periods,
        "Threshold": alarm.threshold,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",  # no data means no deaths
        "AlarmActions": [topic] if topic else [],
    }


def prometheus_rules(rules: Sequence[AlertRule] = RULES) -> str:
    """Return the rules as YAML, with every text as JSON, which is YAML too."""
    lines = ["groups:", "  - name: deadletter", "    rules:"]
    for rule in rules:
        lines += [f"      - alert: {rule.name}", f"        expr: {_text(rule.expr)}"]
        lines += [f"        for: {rule.lasting}"] if rule.lasting else []
        lines += ["        labels:", f"          severity: {rule.severity}"]
        lines += ["        annotations:", f"          summary: {_text(rule.summary)}"]
        if rule.description:
            lines.append(f"          description: {_text(rule.description)}")
    return "\n".join([*lines, ""])


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
