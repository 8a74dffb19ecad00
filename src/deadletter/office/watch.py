"""Looking at what becomes of letters while more of them are sent."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final

from deadletter.core.campaign import Campaign, Outcome, unsent, unsettled
from deadletter.core.care import Halt, Send, Step, Wait, judge_whole_keys, next_step
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
        patience: float = PATIENCE,
    ) -> None:
        self.campaign = campaign
        self._patience = patience
        self._care = campaign.care
        self._look = look
        self._monotonic = monotonic
        self._before = campaign.counts
        self._looked_at = self._moved_at = monotonic()
        self._settled = 0
        self._bound = (
            0.0  # letters out at the end of the step that keys were started in
        )
        self._halt: Halt | None = None
        self.gone = 0  # letters

    def sent(self, letters: int) -> None:
        """That many have gone."""
        self.gone += letters

    def may_start_keys(self, most: int | None, behind: int) -> bool:
        """
        Return whether keys may be started for `most` more letters.

        A step takes whole keys: the next one begins when all letters of the keys
        begun are settled, with `behind` of them still to go, and few enough failed.
        """
        bound = inf if most is None else self.gone + most
        if self._bound and bound > self._bound:
            failed = self._since(Outcome.FAILED)
            settled = self._handled() + failed
            if settled + self._since(Outcome.UNCONFIRMED) < self.gone + behind:
                return False
            self._halt = judge_whole_keys(self._care, settled, failed)
        if self._halt is None:
            self._bound = bound
        return self._halt is None

    async def step(self) -> Step:
        """What to do now."""
        if self._halt is not None:
            return self._halt
        now = self._monotonic()
        step = self._judged()
        if now - self._looked_at >= LOOK or isinstance(step, Wait):
            self._looked_at = now
            with suppress(Unavailable):  # no news is no reason to begin anew
                self.campaign = await self._look()
            step = self._judged()
        settled = self._handled() + self._since(Outcome.FAILED)
        if settled != self._settled:
            self._settled, self._moved_at = settled, now
        if isinstance(step, Send):
            return step
        if not unsent(self.campaign):
            return Send()  # there is nothing that could wait, or be spared
        if isinstance(step, Halt):
            return step
        if now - self._moved_at > self._patience:
            return Halt(
                f"{step.outcomes:,} of those sent have no outcome after"
                f" {_span(self._patience)}: is a worker running?"
            )
        return step

    async def key_step(self) -> Step:
        """What to do where nothing can be sent before a letter of a key is settled."""
        await self.step()
        self.campaign = await self._look()
        waiting = self.campaign.counts.get(Outcome.WAITING, 0)
        if self._monotonic() - self._moved_at > self._patience:
            return Halt(
                f"{waiting:,} wait for the letter before them of their key, and none"
                f" of those sent has an outcome after {_span(self._patience)}:"
                " is a worker running?"
            )
        return Wait(unsettled(self.campaign))

    def _judged(self) -> Step:
        handled = self._handled()
        failed = self._since(Outcome.FAILED)
        # Another letter goes in the place of one that nobody waits for any more.
        gone = max(0, self.gone - self._since(Outcome.UNCONFIRMED))
        return next_step(self._care, gone, handled, failed)

    def _handled(self) -> int:
        # A presumed one that is confirmed later is counted once, and so is its loss.
        return self._since(Outcome.CONFIRMED) + self._since(Outcome.PRESUMED)

    def _since(self, outcome: Outcome) -> int:
        counts = self.campaign.counts
        return counts.get(outcome, 0) - self._before.get(outcome, 0)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
