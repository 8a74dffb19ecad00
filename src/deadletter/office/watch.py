"""Looking at what becomes of letters while more of them are sent."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from deadletter.core.campaign import Campaign, Outcome, unsent
from deadletter.core.care import Halt, Send, Step, Wait, next_step
from deadletter.core.errors import Unavailable

LOOK: Final = 0.2  # seconds between two looks at outcomes
PATIENCE: Final = 900.0  # seconds without any outcome, until nobody seems to work


class Watch:
    """
    Decides from outcomes whether more letters of a campaign may go.

    What counts is what was sent since it began to look: whoever resumes a campaign
    that had stopped by itself begins with a canary again.
    """

    def __init__(
        self,
        campaign: Campaign,
        look: Callable[[], Awaitable[Campaign]],
        monotonic: Callable[[], float],
    ) -> None:
        self.campaign = campaign
        self._care = campaign.care
        self._look = look
        self._monotonic = monotonic
        self._before = campaign.counts
        self._looked_at = self._moved_at = monotonic()
        self._settled = 0
        self.gone = 0  # letters

    def sent(self, letters: int) -> None:
        """That many have gone."""
        self.gone += letters

    async def step(self) -> Step:
        """What to do now."""
        now = self._monotonic()
        step = self._judged()
        if now - self._looked_at >= LOOK or isinstance(step, Wait):
            self._looked_at = now
            with suppress(Unavailable):  # no news is no reason to begin anew
                self.campaign = await self._look()
            step = self._judged()
        settled = self._since(Outcome.CONFIRMED) + self._since(Outcome.FAILED)
        if settled != self._settled:
            self._settled, self._moved_at = settled, now
        if isinstance(step, Send):
            return step
        if not unsent(self.campaign):
            return Send()  # there is nothing that could wait, or be spared
        if isinstance(step, Halt):
            return step
        if now - self._moved_at > PATIENCE:
            return Halt(
                f"{step.outcomes:,} of those sent have no outcome after"
                f" {PATIENCE / 60:.0f} minutes: is a worker running?"
            )
        return step

    def _judged(self) -> Step:
        handled = self._since(Outcome.CONFIRMED)
        failed = self._since(Outcome.FAILED)
        return next_step(self._care, self.gone, handled, failed)

    def _since(self, outcome: Outcome) -> int:
        counts = self.campaign.counts
        return counts.get(outcome, 0) - self._before.get(outcome, 0)
