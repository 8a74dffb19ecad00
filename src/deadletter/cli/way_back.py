"""Replaying through servers of others: the way back for letters found there."""

import shlex
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from deadletter.assembly.foreign import server_label
from deadletter.core.campaign import Campaign
from deadletter.core.durations import parse_duration
from deadletter.core.errors import ConfigError
from deadletter.office.batches import whole_letters
from deadletter.office.preflight import REPLAYABLE, target_of

from .desk import Desk
from .local import LocalOffice
from .office import Office

Presume: TypeAlias = Annotated[str | None, Parameter(show_default=False)]


def name_way(office: Office, through: str | None) -> str | None:
    """Return the name of the server that letters are sent through, if one is given."""
    if through is None:
        return None
    if isinstance(office, LocalOffice):
        return office.ways.named(through)
    if "://" in through:
        raise ConfigError(
            f"--through {server_label(through)} is a URL: a server sends letters only"
            " through servers that its settings name. Give the NAME of [sources.NAME]"
        )
    return through


async def check_way_back(
    office: Office, through: str | None, ids: Sequence[str], to: str | None
) -> None:
    """Refuse letters that cannot go back that way, before any is sent."""
    if through is None or not isinstance(office, LocalOffice):
        return
    async for letters in whole_letters(office.store, ids):
        for letter in letters:
            if letter.head.state in REPLAYABLE:  # the others are not sent anyway
                target = target_of(letter.head, to)
                office.ways.check(through, letter.message, target)


def resume_command(desk: Desk, campaign: Campaign) -> str:
    """Return the command that sends the rest of a replay, as it has to be typed."""
    resume = f"{desk.dlq} replay resume {campaign.id}"
    if not campaign.through or _is_named(desk, campaign):
        return resume
    return f"{resume} --through {shlex.quote(campaign.through)}"


def same_way(desk: Desk, campaign: Campaign) -> str:
    """Return the options with which another replay goes where this one went."""
    words: list[str] = []
    # With --to alone letters go to a mailbox of ours.
    is_needed = campaign.to is not None or not _is_named(desk, campaign)
    if campaign.through and is_needed:
        words += ["--through", campaign.through]
    if campaign.to is not None:
        words += ["--to", campaign.to]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _is_named(desk: Desk, campaign: Campaign) -> bool:
    """Whether the settings name the server; one that we ask has names for all."""
    return desk.server is not None or campaign.through in desk.settings.source_urls


def presumption(text: str | None) -> float | None:
    """Seconds of `--presume`: 0 for never, None if it is not given."""
    if text is None or text.strip().lower() == "never":
        return None if text is None else 0.0
    try:
        seconds = parse_duration(text.strip())
    except ValueError as error:
        raise ConfigError(f"--presume is {error}, or never") from error
    if seconds <= 0:
        raise ConfigError(f"--presume must be longer than 0s, got {text!a}; or never")
    return seconds
