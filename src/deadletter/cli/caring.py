"""How carefully a replay is sent, as options; and why one stopped by itself."""

from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.care import Care
from deadletter.core.errors import ConfigError
from deadletter.core.safe import clean
from deadletter.office.replay import ITSELF

from .desk import Desk
from .exit_codes import ExitCode
from .office import Office
from .options import Flag

_MOST_SAID: Final = 100  # acts on one replay
_NEVER: Final = "never"


@Parameter(name="*")
@dataclass(frozen=True)
class Caring:
    """
    How carefully letters are sent.

    Args:
        canary: Send so many first, and the others only when those were handled.
        ramp: Send ten times as many each time those before were handled: 1, 10, 100
            and so on, or from the canary on.
        halt_on: Stop by itself when more than this fails again, as in 20% or never.
            Otherwise 10% with --canary or --ramp, and 50% without.
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
    go_on = f"Go on with: dlq replay resume {campaign.id}"
    if not by_itself:
        desk.hint(go_on)
        return ExitCode.OK
    if campaign.counts.get(Outcome.FAILED):
        report = f"dlq replay report {campaign.id} --outcome {Outcome.FAILED}"
        desk.err.print(f"See what failed: {report}", soft_wrap=True)
    desk.err.print(go_on, soft_wrap=True)
    return ExitCode.CHECK_FAILED
