"""Options of `dlq replay` that limit what is sent, and messages about why it stopped."""

import math
import shlex
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec import structs

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    Outcome,
    Verdict,
    check_verdicts,
    unsent,
    unsettled,
)
from deadletter.core.errors import ConfigError
from deadletter.core.text import clean, parse_duration
from deadletter.office.audit import AuditFilter
from deadletter.office.office_protocol import OfficeProtocol
from deadletter.office.outcomes import ITSELF, RESENT
from deadletter.office.progress import why_paused

from .app import ExitCode
from .desk import Desk
from .options import Flag, Several
from .ui import Bar, many, span

Presume: TypeAlias = Annotated[str | None, Parameter(show_default=False)]


def resume_command(desk: Desk, campaign: Campaign) -> str:
    """Return the command that sends the rest of a replay, as it has to be typed."""
    resume = f"{desk.dlq} replay resume {campaign.id}"
    if not campaign.through or _is_named(desk, campaign):
        return resume
    return f"{resume} --through {shlex.quote(campaign.through)}"


def same_way(desk: Desk, campaign: Campaign) -> str:
    """Return the options with which another replay uses the same server and mailbox."""
    words: list[str] = []
    # With --to alone, letters are sent to a mailbox of this engine.
    is_needed = campaign.to is not None or not _is_named(desk, campaign)
    if campaign.through and is_needed:
        words += ["--through", campaign.through]
    if campaign.to is not None:
        words += ["--to", campaign.to]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _is_named(desk: Desk, campaign: Campaign) -> bool:
    """Return whether the settings name the server; with `--server`, the server does."""
    return desk.server is not None or campaign.through in desk.settings.source_urls


def presumption(text: str | None) -> float | None:
    """Return the seconds of `--presume`: 0 for never, None if it is not given."""
    if text is None or text.strip().lower() == "never":
        return None if text is None else 0.0
    try:
        seconds = parse_duration(text.strip())
    except ValueError as error:
        raise ConfigError(f"--presume must be a duration or never: {error}") from error
    if seconds <= 0:
        raise ConfigError(f"--presume must be longer than 0s, or never, got {text!a}")
    return seconds


_MAX_ENTRIES: Final = 100  # audit entries of one replay
_NEVER: Final = "never"
_LONG: Final = 10.0  # seconds without an outcome after which a hint is printed


@Parameter(name="*")
@dataclass(frozen=True)
class StepOptions:
    """
    Options for sending letters in steps.

    Args:
        canary: Send N letters first; send the rest only after those have been
            processed.
        ramp: Send ten times as many letters at each step (1, 10, 100, or starting at
            the canary), each step after the one before has been processed.
        halt_on: Pause the replay when more than this share fails again, such as 20%,
            or never. Without --canary and --ramp, 20 letters go first, and each step
            sends ten times as many. Default: 10% with --canary or --ramp, else 50%.
    """

    canary: Annotated[int | None, Parameter(validator=Number(gte=1, lte=100_000))] = None
    ramp: Flag = False
    halt_on: str | None = None

    def care(self) -> Care:
        """Return the options as a `Care`."""
        share = None if self.halt_on is None else _share(self.halt_on)
        return Care(canary=self.canary, ramp=self.ramp, halt_on=share)


@Parameter(name="*")
@dataclass(frozen=True)
class VerdictOptions:
    """
    Options that leave letters out or send them by verdict, and their order.

    Args:
        skip: Leave out letters of this verdict, such as expired or credentials. Can
            be given several times.
        include: Send letters of this verdict without asking: already-processed,
            unreadable and id-in-use ones are left out otherwise. Those with id-in-use
            go under a new id. Can be given several times.
        no_key_order: Send oldest first without waiting within a key. Otherwise the
            next letter of a key goes only after the one before it was confirmed.
    """

    skip: Several = ()
    include: Several = ()
    no_key_order: Flag = False

    def care(self, how: StepOptions | None = None) -> Care:
        """Return the options as a `Care`, together with the steps of `how`."""
        skip = tuple(_verdict(word) for word in self.skip)
        include = tuple(_verdict(word) for word in self.include)
        check_verdicts(skip, include)
        return structs.replace(
            Care() if how is None else how.care(),
            skip=skip,
            include=include,
            key_order=not self.no_key_order,
        )


def _verdict(word: str) -> Verdict:
    try:
        return Verdict(word.strip().lower())
    except ValueError:
        known = ", ".join(Verdict)
        raise ConfigError(f"{word!a} is not a verdict: use one of {known}") from None


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
            f"--halt-on must be a share such as 20% or 0.2, or {_NEVER}, got {text!a}"
        )
    return share


class Waiting:
    """A callback that shows how many outcomes are missing, and a hint if it takes long."""

    def __init__(self, desk: Desk, shown: Bar, campaign: Campaign) -> None:
        self._desk = desk
        self._shown = shown
        self._campaign = campaign
        self._outcomes = 0
        self._since = 0.0

    def __call__(self, outcomes: int) -> None:
        """Show the number of outcomes that are still missing."""
        self._shown.show_text(f"waiting for {many(outcomes, 'outcome')}")
        now = self._desk.clock.monotonic()
        if outcomes != self._outcomes:
            self._outcomes, self._since = outcomes, now
        elif now - self._since > _LONG:
            self._since = math.inf  # print the hint once
            text = f"No outcome for {span(_LONG)}: is a worker running?"
            text = f"{text}{_presumption_hint(self._campaign)} Ctrl-C pauses the replay."
            self._desk.err.print(text, soft_wrap=True)


def _presumption_hint(campaign: Campaign) -> str:
    """Return a hint about consumers outside deadletter, which report no outcomes."""
    through, after = campaign.through, campaign.care.presume_after
    if not through:
        return ""
    text = f" `dlq drain {through} QUEUE --follow` notices messages that fail again."
    if after:
        text += f" The others are presumed handled after {after:,g} seconds."
    return text


def summarize_wait(desk: Desk, campaign: Campaign, waited: float) -> ExitCode:
    """Print a message and fail if letters have no outcome yet."""
    if unsettled(campaign):
        text = f"Some letters have no outcome after {span(waited)}. Is a worker running?"
        text += _presumption_hint(campaign)
        desk.err.print(text, soft_wrap=True)
        return ExitCode.CHECK_FAILED
    return ExitCode.OK


async def warn_of_duplicates(desk: Desk, office: OfficeProtocol, campaign: Campaign) -> None:
    """Print which copies may have been sent twice, according to the audit."""
    if not campaign.through or desk.as_json:
        return
    for one in await office.audit(target=campaign.id, limit=_MAX_ENTRIES):
        if one.action == RESENT and one.actor == ITSELF:
            desk.warn(f"{clean(one.detail)}. {clean(one.reason)}.")


async def explain_pause(desk: Desk, office: OfficeProtocol, campaign: Campaign) -> ExitCode:
    """Print why a replay is paused, if it is, and how to continue."""
    if campaign.state is not CampaignState.PAUSED:
        return ExitCode.OK
    wanted = AuditFilter(target=campaign.id)
    pause = why_paused(campaign, await office.latest_audit(wanted, limit=_MAX_ENTRIES))
    if pause is None:
        return ExitCode.OK
    by_itself = pause.by_itself
    who = "It" if by_itself else f"Paused by {clean(pause.actor)}:"
    if pause.reason and not desk.as_json:
        reason = clean(pause.reason)
        end = "" if reason.endswith(("?", "!", ".")) else "."
        desk.tell(f"{who} {reason}{end}", "yellow" if by_itself else "dim")
    resume = resume_command(desk, campaign)
    if not by_itself:
        desk.hint(f"Continue with: {resume}")
        return ExitCode.OK
    if campaign.counts.get(Outcome.FAILED):
        report = f"{desk.dlq} replay report {campaign.id} --outcome {Outcome.FAILED}"
        desk.err.print(f"See what failed: {report}", soft_wrap=True)
    left = many(unsent(campaign), "letter")
    desk.err.print(f"Send the rest ({left}): {resume}", soft_wrap=True)
    return ExitCode.CHECK_FAILED
