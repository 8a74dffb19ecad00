"""Replay campaigns in numbers: what became of letters sent back, and how fast."""

from collections import Counter as Tally
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.replaying import HANDLED
from deadletter.ports import Clock

_OUT: Final = HANDLED | {Outcome.SENT, Outcome.UNCONFIRMED, Outcome.FAILED}
_ENDS: Final = (
    Outcome.CONFIRMED,
    Outcome.PRESUMED,
    Outcome.FAILED,
    Outcome.REFUSED,
    Outcome.SKIPPED,
)


class Replays:
    """Counts outcomes as they come in; those from before the first look are not."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._messages = Counter(
            "dlq_replay_messages",
            "Letters sent back, by what became of them.",
            ["campaign_kind", "outcome"],
            registry=registry,
        )
        self._rate = Gauge(
            "dlq_replay_rate", "Letters sent back per second.", registry=registry
        )
        self._running = Gauge(
            "dlq_replay_campaigns", "Replays by state.", ["state"], registry=registry
        )
        self._unsettled = Gauge(
            "dlq_replay_unsettled",
            "Letters sent back whose outcome is to come.",
            registry=registry,
        )
        for kind in ("back", "elsewhere"):
            for outcome in _ENDS:
                self._messages.labels(kind, outcome.value)
        self._clock = clock
        self._since = clock.now()
        self._before: dict[str, dict[Outcome, int]] = {}
        self._looked = clock.monotonic()

    def show(self, campaigns: Sequence[Campaign]) -> None:
        """How the latest campaigns stand now."""
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
