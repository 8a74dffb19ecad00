"""
Metrics of the office for Prometheus, read from the store on request.

All numbers of series are bounded: sources are capped, and only the latest groups and
campaigns are read.
"""

import asyncio
import math
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from deadletter.core.campaign import Campaign, CampaignState, Outcome, is_any_unsettled
from deadletter.core.errors import BackendError
from deadletter.core.grouping import is_overflow
from deadletter.core.letter import Group, GroupStatus, State, still_open
from deadletter.core.replay_rules import HANDLED
from deadletter.ports import Clock, LetterStore
from deadletter.profiles.pipeline import node_of

from .metrics import Capped
from .observers import Arrivals, Arrived
from .waiting import oldest_pending

GROUPS: Final = 1_000  # number of latest groups and replays that are counted
PATIENCE: Final = 10.0  # seconds for the office to answer
AGES_EVERY: Final = 60.0  # seconds between two searches for the oldest letters
AGED: Final = 50  # sources whose oldest letter is searched, those with most pending first

Mismatch = Callable[[], Awaitable[int]]

_OUT: Final = HANDLED | {Outcome.SENT, Outcome.UNCONFIRMED, Outcome.FAILED}
_ENDS: Final = (
    Outcome.CONFIRMED,
    Outcome.PRESUMED,
    Outcome.FAILED,
    Outcome.REFUSED,
    Outcome.SKIPPED,
)


class Replays:
    """Metrics of replays. Outcomes before the first check do not count."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._messages = Counter(
            "dlq_replay_messages",
            "Letters sent back, by outcome.",
            ["campaign_kind", "outcome"],
            registry=registry,
        )
        self._rate = Gauge("dlq_replay_rate", "Letters sent back per second.", registry=registry)
        self._running = Gauge(
            "dlq_replay_campaigns", "Replays by state.", ["state"], registry=registry
        )
        self._unsettled = Gauge(
            "dlq_replay_unsettled", "Letters sent back that have no outcome yet.", registry=registry
        )
        for kind in ("back", "elsewhere"):
            for outcome in _ENDS:
                self._messages.labels(kind, outcome.value)
        self._clock = clock
        self._since = clock.now()
        self._before: dict[str, dict[Outcome, int]] = {}
        self._looked = clock.monotonic()

    def show(self, campaigns: Sequence[Campaign]) -> None:
        """Set the metrics from the latest campaigns."""
        sent = 0
        for campaign in campaigns:
            before = self._before.get(campaign.id)
            if before is None and campaign.created_at < self._since:
                continue
            before = before or {}
            kind = "back" if campaign.to is None else "elsewhere"
            for outcome in _ENDS:
                new = campaign.counts.get(outcome, 0) - before.get(outcome, 0)
                self._messages.labels(kind, outcome.value).inc(max(0, new))
            sent += max(0, _sent(campaign.counts) - _sent(before))
        self._before = {one.id: one.counts for one in campaigns}
        self._show_rate(sent)
        states = Tally(campaign.state for campaign in campaigns)
        for state in CampaignState:
            self._running.labels(state.value).set(states[state])
        self._unsettled.set(sum(c.counts.get(Outcome.SENT, 0) for c in campaigns))

    def _show_rate(self, sent: int) -> None:
        now = self._clock.monotonic()
        if now > self._looked:
            self._rate.set(sent / (now - self._looked))
            self._looked = now


def _sent(counts: dict[Outcome, int]) -> int:
    return sum(counts.get(outcome, 0) for outcome in _OUT)


class OfficeMetrics:
    """
    Gauges of one office, and counters of its arrivals.

    Counters start at the first check. A new source is shown at zero first, because Prometheus
    misses the first increase of a series that does not start at zero. Without `mismatch`, for
    engines that keep no sums, that gauge is NaN.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        store: LetterStore,
        clock: Clock,
        *,
        mismatch: Mismatch | None = None,
    ) -> None:
        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(name, about, labels, registry=registry)

        self._up = gauge("dlq_office_up", "1 while the office answers.")
        self._letters = gauge("dlq_messages", "Letters in the office.", "state", "source")
        self._depth = gauge("dlq_queue_depth", "Open letters.", "mailbox")
        self._depth_of_node = gauge("pipestream_dlq_depth", "Open letters.", "node_id")
        self._oldest = gauge(
            "dlq_oldest_unreviewed_age_seconds",
            "Age of the oldest letter that nobody has reviewed.",
            "source",
        )
        self._unsettled = gauge(
            "dlq_oldest_unsettled_age_seconds",
            "Age of the oldest replayed copy without an outcome.",
            "source",
        )
        self._groups = gauge("dlq_groups", "Groups with open letters.", "status")
        self._mismatch = gauge(
            "dlq_reconcile_mismatch", "Messages missing or too many, in all mailboxes."
        )
        self._mismatch.set(math.nan)  # until it is known
        self._arrived = Counter(
            "dlq_arrivals", "Deaths recorded in the office.", ["source"], registry=registry
        )
        self._new_groups = Counter(
            "dlq_new_groups", "Groups that were seen for the first time.", registry=registry
        )
        self._overflowed = Counter(
            "dlq_overflow_arrivals",
            "Deaths recorded in overflow groups: there were too many new groups.",
            ["source"],
            registry=registry,
        )
        self._replays = Replays(registry, clock)
        self._store = store
        self._clock = clock
        self._ask_mismatch = mismatch
        self._arrivals = Arrivals(clock.now())
        self._source = Capped()
        self._shown: set[str] = set()  # sources that have been seen at zero
        self._oldest_of: dict[str, datetime] = {}
        self._unsettled_since: dict[str, datetime] = {}
        self._aged: float | None = None
        self._held: Tally[str] = Tally()  # arrivals of other sources

    async def refresh(self) -> None:
        """Read the office and set the metrics; if it does not answer, only set it as down."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._ask()
        except (BackendError, TimeoutError):
            self._up.set(0)
        else:
            self._up.set(1)

    async def _ask(self) -> None:
        counts = await self._store.counts()
        groups = await self._store.groups(only_open=False, limit=GROUPS)
        self._show_letters(counts)
        self._show_groups(groups)
        self._show_arrivals(counts, self._arrivals.look(groups))
        await self._show_ages(counts)
        self._replays.show(await self._store.campaigns(limit=GROUPS))
        if self._ask_mismatch is not None:
            self._mismatch.set(await self._ask_mismatch())

    def _show_letters(self, counts: Mapping[str, Mapping[State, int]]) -> None:
        letters = {source: dict.fromkeys(State, 0) for source in self._shown}
        for source, states in counts.items():
            into = letters.setdefault(self._source(source), dict.fromkeys(State, 0))
            for state, count in states.items():
                into[state] += count
        nodes: Tally[str] = Tally()
        for source, states in letters.items():
            for state, count in states.items():
                self._letters.labels(state.value, source).set(count)
            depth = still_open(states)
            self._depth.labels(source).set(depth)
            nodes[node_of(source)] += depth
        for node, depth in nodes.items():
            self._depth_of_node.labels(node).set(depth)

    def _show_groups(self, groups: Sequence[Group]) -> None:
        statuses = Tally(group.standing.status for group in groups if group.open)
        for status in GroupStatus:
            self._groups.labels(status.value).set(statuses[status])

    def _show_arrivals(
        self, counts: Mapping[str, Mapping[State, int]], arrived: list[Arrived]
    ) -> None:
        for source, count in self._held.items():
            self._arrived.labels(source).inc(count)
        self._held.clear()
        known = set(self._shown)
        for one in arrived:
            source = self._source(one.group.source)
            if source in known:
                self._arrived.labels(source).inc(one.count)
            else:
                self._held[source] += one.count
            self._new_groups.inc(one.is_new)
            if is_overflow(one.group.fingerprint):
                self._overflowed.labels(source).inc(one.count)
        for source in {*map(self._source, counts), *self._held}:
            self._arrived.labels(source)
            self._overflowed.labels(source)
            self._shown.add(source)

    async def _show_ages(self, counts: Mapping[str, Mapping[State, int]]) -> None:
        asked = self._clock.monotonic()
        if self._aged is None or asked - self._aged >= AGES_EVERY:
            self._oldest_of = await self._find_oldest(counts)
            self._unsettled_since = await self._find_unsettled(counts)
            self._aged = asked
        self._set_ages(self._oldest, self._oldest_of)
        self._set_ages(self._unsettled, self._unsettled_since)

    def _set_ages(self, gauge: Gauge, since: Mapping[str, datetime]) -> None:
        now = self._clock.now()
        for source in self._shown | set(since):
            age = max(0.0, (now - since.get(source, now)).total_seconds())
            gauge.labels(source).set(age)

    async def _find_unsettled(
        self, counts: Mapping[str, Mapping[State, int]]
    ) -> dict[str, datetime]:
        """Return since when the oldest replayed copy of each source has no outcome."""
        oldest: dict[str, datetime] = {}
        since = await self._store.waiting_since() if is_any_unsettled(counts) else {}
        for source, taken in since.items():
            name = self._source(source)
            oldest[name] = min(taken, oldest.get(name, taken))
        return oldest

    async def _find_oldest(self, counts: Mapping[str, Mapping[State, int]]) -> dict[str, datetime]:
        """Return when the oldest pending letter died, of the sources with most of them."""
        now = self._clock.now()
        pending = {s: states.get(State.PENDING, 0) for s, states in counts.items()}
        most = sorted(filter(pending.get, pending), key=lambda s: -pending[s])[:AGED]
        oldest: dict[str, datetime] = {}
        for source in most:
            died = await oldest_pending(self._store, source, now)
            if died is not None:
                name = self._source(source)
                oldest[name] = min(died, oldest.get(name, died))
        return oldest
