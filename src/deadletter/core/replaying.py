"""
The rules of sending letters back, which all stores follow.

A letter goes out with the number of its replay as the generation of the copy.
News of a copy counts while that very copy is out, and news that comes twice changes
nothing. A copy that was confirmed may still fail: delivered again because its ack was
lost, or further on with its lineage. Then it has failed, and the letter is open again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .campaign import CampaignState, Outcome
from .errors import ConfigError, Conflict
from .letter import MOVES, By, State
from .message import Lineage, Message

OUT: Final = frozenset({Outcome.SENDING, Outcome.SENT})
"""A copy may be on its way, and its outcome is still to come."""

SETTLED_FROM: Final = {
    Outcome.CONFIRMED: OUT,
    Outcome.FAILED: OUT | {Outcome.CONFIRMED},
}
"""The outcomes that each kind of news of a copy changes."""

UNFINISHED: Final = OUT | {Outcome.PLANNED}
"""While there are items like this, a campaign is not done."""

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


Moved: TypeAlias = Counter[tuple[str, str, str]]
"""How many letters are taken, by their source, group and old state."""

READY: Final = frozenset(
    state for state in State if take(state, 0, 1)[0] is Outcome.SENDING
)
"""A letter in one of these states may go, if it is not past the cap."""


class Going(Struct, frozen=True):
    """Of some planned items, what may go out and what not."""

    ordinals: Sequence[int]  # of all
    rows: list[Sequence[Any]]  # that may go
    left: dict[int, None]  # ordinals that stay, also those whose letter is gone
    past_cap: list[str]
    moved: Moved


def judge(ordinals: Sequence[int], rows: Iterable[Sequence[Any]], cap: int) -> Going:
    """Which may go, of rows: seq, id, source, fingerprint, state, replays, ordinal."""
    going: list[Sequence[Any]] = []
    left = dict.fromkeys(ordinals)
    past_cap: list[str] = []
    # Letters are much alike: each question is answered once.
    verdicts = cache(lambda state, replays: take(State(state), replays, cap))
    moved: Moved = Counter()
    for row in rows:
        _, id_, source, fingerprint, before, replays, ordinal = row[:7]
        outcome, after = verdicts(before, replays)
        if outcome is Outcome.SENDING:
            going.append(row)
            del left[ordinal]
            moved[source, fingerprint, before] += 1
        elif after is State.QUARANTINED and before != after:
            past_cap.append(id_)
    return Going(ordinals, going, left, past_cap, moved)


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


def landing(
    state: State, replays: int, generation: int, outcome: Outcome, cap: int | None
) -> State | None:
    """Where a letter goes by news of one of its copies; None: it stays where it is."""
    if outcome is Outcome.CONFIRMED:
        return State.REPLAYED if is_out(state, replays, generation) else None
    if replays == generation and state in {State.REPLAYING, State.REPLAYED}:
        return came_back(replays, cap)
    return None


def heard(
    news: Iterable[tuple[str, int, Outcome]],
) -> dict[tuple[str, int], Outcome]:
    """News by letter and generation; told both ways at once, the copy has failed."""
    outcomes: dict[tuple[str, int], Outcome] = {}
    for letter_id, generation, outcome in news:
        if outcomes.get((letter_id, generation)) is not Outcome.FAILED:
            outcomes[letter_id, generation] = outcome
    return outcomes


def check_news(outcomes: Iterable[Outcome]) -> None:
    """Only what a consumer made of a copy is news."""
    for outcome in outcomes:
        if outcome not in SETTLED_FROM:
            raise ConfigError(
                f"a replayed copy cannot be settled as {outcome}:"
                f" say {Outcome.CONFIRMED} or {Outcome.FAILED}"
            )


def runs_as(before: str, state: CampaignState, by: By) -> str:
    """The principal a campaign runs as, once `by` has put it into this state."""
    return by.principal if state is CampaignState.RUNNING else before


def check_change(campaign: str, old: CampaignState, new: CampaignState) -> None:
    """What has ended stays ended."""
    if old in _ENDED and new is not old:
        raise Conflict(f"campaign {campaign} is {old} and cannot be {new} any more")
