"""
The rules of sending letters back, which all stores follow.

A letter goes out with the number of its replay as the generation of the copy.
News of a copy counts only while that very copy is out: late news of older ones
changes nothing, and neither does news that comes twice.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from .campaign import CampaignState, Outcome
from .errors import ConfigError, Conflict
from .letter import MOVES, State
from .message import Lineage, Message

OUT: Final = frozenset({Outcome.SENDING, Outcome.SENT})
"""A copy may be on its way, and its outcome is still to come."""

UNFINISHED: Final = OUT | {Outcome.PLANNED}
"""While there are items like this, a campaign is not done."""

_NEWS: Final = frozenset({Outcome.CONFIRMED, Outcome.FAILED})
_ENDED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})


def take(state: State, replays: int, cap: int) -> tuple[Outcome, State]:
    """What becomes of a planned letter when its turn comes, and of its state."""
    if State.REPLAYING not in MOVES[state]:
        return Outcome.SKIPPED, state
    if replays < cap:
        return Outcome.SENDING, State.REPLAYING
    if State.QUARANTINED in MOVES[state]:
        return Outcome.SKIPPED, State.QUARANTINED
    return Outcome.SKIPPED, state


def copied(message: Message, lineage: Lineage, now: datetime) -> Message:
    """
    The message as it was, body and headers untouched, as a copy of its letter.

    Only an expiry that is over is left out: with it the copy would be buried again
    at once.
    """
    expires_at = message.expires_at
    if expires_at is not None and expires_at <= now:
        expires_at = None
    return replace(message, lineage=lineage, expires_at=expires_at)


def is_out(state: State, replays: int, generation: int) -> bool:
    """Whether this copy is the one its letter is waiting for."""
    return state is State.REPLAYING and replays == generation


def came_back(replays: int, cap: int | None) -> State:
    """Where a letter goes whose replayed copy failed."""
    if cap is not None and replays >= cap:
        return State.QUARANTINED
    return State.PENDING


def check_news(outcomes: Iterable[Outcome]) -> None:
    """Only what a consumer made of a copy is news."""
    for outcome in outcomes:
        if outcome not in _NEWS:
            raise ConfigError(
                f"a replayed copy cannot be settled as {outcome}:"
                f" say {Outcome.CONFIRMED} or {Outcome.FAILED}"
            )


def check_change(campaign: str, old: CampaignState, new: CampaignState) -> None:
    """What has ended stays ended."""
    if old in _ENDED and new is not old:
        raise Conflict(f"campaign {campaign} is {old} and cannot be {new} any more")
