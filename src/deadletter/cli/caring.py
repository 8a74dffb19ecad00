"""How carefully a replay is sent, as options; and why one stopped by itself."""

import math
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from deadletter.core.campaign import Campaign, CampaignState, Outcome, unsettled
from deadletter.core.care import Care
from deadletter.core.errors import ConfigError
from deadletter.core.safe import clean
from deadletter.office.replay import ITSELF

from .desk import Desk
from .exit_codes import ExitCode
from .office import Office
from .options import Flag
from .progress import Bar
from .times import many, span

_MOST_SAID: Final = 100  # acts on one replay
_NEVER: Final = "never"
_LONG: Final = 10.0  # seconds without an outcome, until somebody should have a look


@Parameter(name="*")
@dataclass(frozen=True)
class Caring:
    """
    How carefully letters are sent.

    Args:
        canary: Send so many first, and the others only when those were handled.
        ramp: Send ten times as many each time those before were handled: 1, 10, 100
            and so on, or from the canary on.
        halt_on: Stop by itself when more than this fails again, as in 20% or never;
            said alone, 20 go first, and ten times as many at each step. Otherwise 10%
            with --canary or --ramp, and 50% without.
    """

    canary: Annotated[int | None, Parameter(validator=Number(gte=1, lte=100_000))] = (
        None
    )
    ramp: Flag = False
    halt_on: str | None = None

    def care(self) -> Care:
        """The same as a value."""
        share = None if self.halt_on is None else _share(self.halt_on)
        return Care(canary=self.canary, ramp=self.ramp, halt_on=share)


def _share(text: str) -> float:
    if text.strip().lower() == _NEVER:
        return 1.0
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(
            f"--halt-on takes a share, as in 20% or 0.2, or the word {_NEVER};"
            f" not {text!a}"
        )
    return share


class Waiting:
    """Says what is waited for; and that nobody seems to work, if it takes long."""

    def __init__(self, desk: Desk, shown: Bar) -> None:
        self._desk = desk
        self._shown = shown
        self._outcomes = 0
        self._since = 0.0

    def __call__(self, outcomes: int) -> None:
        """So many outcomes are waited for."""
        self._shown.say(f"waiting for {many(outcomes, 'outcome')}")
        now = self._desk.clock.monotonic()
        if outcomes != self._outcomes:
            self._outcomes, self._since = outcomes, now
        elif now - self._since > _LONG:
            self._since = math.inf  # once is enough
            said = f"No outcome for {span(_LONG)}: is a worker running?"
            self._desk.err.print(f"{said} Ctrl-C pauses the replay.", soft_wrap=True)


def how_it_went(desk: Desk, campaign: Campaign, waited: float) -> ExitCode:
    """Whether all that was sent has an outcome, and few enough failed again."""
    if unsettled(campaign):
        said = f"Not all have an outcome after {span(waited)}. Is a worker up?"
        desk.err.print(said, soft_wrap=True)
        return ExitCode.CHECK_FAILED
    handled = campaign.counts.get(Outcome.CONFIRMED, 0)
    failed = campaign.counts.get(Outcome.FAILED, 0)
    if campaign.care.is_too_much(failed, handled + failed):
        return ExitCode.CHECK_FAILED
    return ExitCode.OK


async def tell_why(desk: Desk, office: Office, campaign: Campaign) -> ExitCode:
    """Why a replay is paused, if it is, and how to go on."""
    if campaign.state is not CampaignState.PAUSED:
        return ExitCode.OK
    acts = await office.audit(campaign.id, limit=_MOST_SAID)
    last = next((one for one in reversed(acts) if one.action == "campaign"), None)
    if last is None:
        return ExitCode.OK
    by_itself = last.actor == ITSELF
    who = "It" if by_itself else f"Paused by {clean(last.actor)}:"
    if last.reason and not desk.as_json:
        desk.tell(f"{who} {clean(last.reason)}.", "yellow" if by_itself else "dim")
    go_on = f"Go on with: {desk.dlq} replay resume {campaign.id}"
    if not by_itself:
        desk.hint(go_on)
        return ExitCode.OK
    if campaign.counts.get(Outcome.FAILED):
        report = f"{desk.dlq} replay report {campaign.id} --outcome {Outcome.FAILED}"
        desk.err.print(f"See what failed: {report}", soft_wrap=True)
    desk.err.print(go_on, soft_wrap=True)
    return ExitCode.CHECK_FAILED
