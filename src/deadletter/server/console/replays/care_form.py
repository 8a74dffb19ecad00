"""How carefully letters are sent, as a form says it."""

from typing import Annotated, Final, Literal, TypeAlias

from litestar.params import QueryParameter
from msgspec import Struct, structs

from deadletter.core.campaign import BLOCKED, DEFAULTS, Campaign, Care, Treatment, Verdict, checked
from deadletter.core.errors import ConfigError
from deadletter.office.replay_plans import PlanWish

How: TypeAlias = Literal["careful", "steady", "once"]
FIRST: Final = 10  # letters of a careful replay that go first
PACE: Final = 50.0  # letters per second of a steady replay
_MOST: Final = 100


class CareForm(Struct, frozen=True, kw_only=True):
    """The fields of a form that say how carefully letters are sent."""

    how: How = "careful"
    canary: int = FIRST
    ramp: bool = True
    halt: float | None = None  # percent; None: the default
    key_order: bool = True

    @property
    def halt_text(self) -> str:
        """Return the share that stops a replay, in percent, as the field shows it."""
        return "" if self.halt is None else f"{self.halt:g}"

    def care(self, before: Care | None = None) -> Care:
        """Return the precautions; those that the form does not have stay as they were."""
        if self.halt is not None and not 0 <= self.halt <= _MOST:
            raise ConfigError(f"the share must be 0 to {_MOST} percent, got {self.halt:g}")
        careful = self.how == "careful"
        return checked(
            structs.replace(
                before or Care(),
                canary=self.canary if careful else None,
                ramp=careful and self.ramp,
                halt_on=None if self.halt is None else self.halt / 100,
                key_order=self.key_order,
            )
        )


def form_of(care: Care, rate: float | None = None) -> CareForm:
    """Return the form that shows these precautions."""
    careful = care.canary is not None or care.ramp
    return CareForm(
        how="careful" if careful else "once" if rate is None else "steady",
        canary=care.canary or (1 if care.ramp else FIRST),
        ramp=care.ramp if careful else True,
        halt=None if care.halt_on is None else round(care.halt_on * 100, 3),
        key_order=care.key_order,
    )


class PlanForm(CareForm, frozen=True, kw_only=True):
    """
    The form of a judged plan: which verdicts are sent, and how.

    `send` has the verdicts that are ticked. `shown` tells that the form was shown: without
    it the plan is as it was planned.
    """

    send: tuple[Verdict, ...] = ()
    shown: bool = False
    reason: str = ""
    expect: int | None = None

    def wish(self, campaign: Campaign) -> PlanWish:
        """Return the changes that this form makes to a plan."""
        if not self.shown:
            return PlanWish()
        offered = choices_of(campaign)
        return PlanWish(
            leave_out=tuple(one for one in offered if one not in self.send),
            include=tuple(
                one for one in offered if one in self.send and DEFAULTS[one] is not Treatment.SEND
            ),
            care=structs.replace(self.care(campaign.care), skip=(), include=()),
        )

    def sends(self, campaign: Campaign, verdict: Verdict) -> bool:
        """Return whether a verdict is ticked; one that asks is not before somebody does."""
        if self.shown:
            return verdict in self.send
        return campaign.care.treats(verdict) is Treatment.SEND


def choices_of(campaign: Campaign) -> tuple[Verdict, ...]:
    """Return the verdicts of a plan that somebody may leave out or include."""
    found = {} if campaign.plan is None else campaign.plan.verdicts
    return tuple(one for one in Verdict if found.get(one) and one not in BLOCKED)


def plan_form(campaign: Campaign) -> PlanForm:
    """Return the form of a plan as it is before anybody changes it."""
    form = form_of(campaign.care, campaign.rate)
    return PlanForm(**structs.asdict(form), reason=campaign.reason)


# The same fields as parameters of pages that show what a form would do.

HowParam: TypeAlias = Annotated[How, QueryParameter()]
CanaryParam: TypeAlias = Annotated[int, QueryParameter(ge=1, le=100_000)]
FlagParam: TypeAlias = Annotated[bool, QueryParameter()]
HaltParam: TypeAlias = Annotated[str, QueryParameter(max_length=12)]
RateParam: TypeAlias = Annotated[str, QueryParameter(max_length=12)]
SendParam: TypeAlias = Annotated[list[Verdict] | None, QueryParameter(max_items=len(Verdict))]
ReasonParam: TypeAlias = Annotated[str, QueryParameter(max_length=1_000)]


def number_of(text: str, what: str) -> float | None:
    """Return the number in a field; None if it is empty."""
    if not text.strip():
        return None
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        raise ConfigError(f"{what} must be a number, got {text[:20]!r}") from None
