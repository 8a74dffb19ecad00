"""
The order in which letters are sent back: oldest first, by when each message was sent.

Messages sent at the same moment follow their positions on the broker, then their ids.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .campaign import CampaignState, Outcome
from .errors import ConfigError, Conflict
from .letter import MOVES, OPEN, By, State
from .message import Lineage, Message

LONGEST: Final = 200  # characters of a position that count
_DIGITS: Final = 20  # of any number in a position
_number: Final = partial(re.compile(r"[0-9]+").sub, lambda found: found[0].zfill(_DIGITS))

SendOrder: TypeAlias = tuple[datetime, str, str]


def sortable_position(position: str | None) -> str | None:
    """Return a position so that texts compare as the numbers in them do."""
    if position is None:
        return None
    plain = position[:LONGEST].encode("ascii", "backslashreplace").decode()
    return _number(plain.replace("\0", ""))  # which PostgreSQL keeps in no text


def send_order(message: Message, position: str | None) -> SendOrder:
    """Return what letters are sorted by."""
    return message.sent_at, sortable_position(position) or "", message.id


# The rules of sending letters back, which all stores follow.
#
# A letter goes out with the number of its replay as the generation of the copy.
# News of a copy counts while that very copy is out, and news that comes twice changes
# nothing. A copy that was confirmed may still fail: delivered again because its ack was
# lost, or further on with its lineage. Then it has failed, and the letter is open again.
# Somebody may stop waiting for a copy: its outcome is `unconfirmed` until news comes.
# A consumer of others says nothing: a copy that has not died again in a stated time is
# `presumed` to be handled, until news comes. What a server does not take is `refused`.


class CopyState(StrEnum):
    """The state of a copy, as a foreign server reports it."""

    HANDLED = "handled"  # its consumer has finished it
    DEAD = "dead"  # it failed again, and lies in a dead place until it is drained
    THERE = "there"  # it waits for its consumer, or is being handled
    UNKNOWN = "unknown"


class Arrival(StrEnum):
    """The arrival of a copy whose sending was interrupted, as a foreign server reports it."""

    ARRIVED = "arrived"  # it was sent
    MISSING = "missing"  # it is sent now: it is not there, or doubles are dropped
    LOST = "lost"  # records that would tell are gone, or too many: it is not sent
    UNKNOWABLE = "unknowable"  # the server never tells: it is sent, perhaps twice


OUT: Final = frozenset({Outcome.SENDING, Outcome.SENT})
"""A copy may be on its way, and its outcome is still to come."""

SETTLED_FROM: Final = {
    Outcome.REFUSED: frozenset({Outcome.SENDING}),
    Outcome.UNCONFIRMED: OUT,
    Outcome.PRESUMED: frozenset({Outcome.SENT}),
    Outcome.CONFIRMED: OUT | {Outcome.UNCONFIRMED, Outcome.PRESUMED},
    Outcome.FAILED: OUT | {Outcome.UNCONFIRMED, Outcome.PRESUMED, Outcome.CONFIRMED},
}
"""The outcomes that each kind of news of a copy changes."""

UNFINISHED: Final = OUT | {Outcome.PLANNED, Outcome.WAITING}
"""While there are items like this, a campaign is not done."""

HANDLED: Final = frozenset({Outcome.CONFIRMED, Outcome.PRESUMED})
"""The copy was handled, as far as is known."""

FREES: Final = HANDLED | {Outcome.SKIPPED, Outcome.UNCONFIRMED}
"""Outcomes after which the next letter of the same key may go, unless it is held."""

_ENDED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})


def take(state: State, replays: int, cap: int) -> tuple[Outcome, State]:
    """Return what becomes of a planned letter when its turn comes, and of its state."""
    if State.REPLAYING not in MOVES[state]:
        return Outcome.SKIPPED, state
    if replays < cap:
        return Outcome.SENDING, State.REPLAYING
    if State.QUARANTINED in MOVES[state]:
        return Outcome.SKIPPED, State.QUARANTINED
    return Outcome.SKIPPED, state


def still_needed(state: State, replays: int, cap: int) -> bool:
    """
    Return whether a letter that was skipped has yet to be handled.

    It is out in another campaign, or past the cap: what follows it by its key waits.
    """
    if state is State.REPLAYING:
        return True
    return State.REPLAYING in MOVES[state] and replays >= cap


def is_done_with(outcome: Outcome, state: State) -> bool:
    """
    Return whether the next letter of the same key may go by news of a copy.

    `state` is that of the letter when the news came. A letter that nobody waits for
    any more counts as failed, unless somebody closed it: what follows it by its key
    is held.
    """
    if outcome is Outcome.UNCONFIRMED:
        return state is State.CLOSED
    return outcome in HANDLED


READY: Final = frozenset(state for state in State if take(state, 0, 1)[0] is Outcome.SENDING)
"""A letter in one of these states may go, if it is not past the cap."""


class Candidate(Struct, frozen=True, gc=False):
    """A letter whose turn in a campaign has come."""

    seq: int
    id: str
    source: str
    fingerprint: str
    state: str  # as it is stored
    replays: int
    ordinal: int
    contents: Any = None  # what its copy is made of, as the store has it


class Interrupted(Struct, frozen=True):
    """An item that was taken but never reported as sent; the state is None without a letter."""

    ordinal: int
    letter: int
    generation: int
    state: State | None
    replays: int

    @property
    def is_out(self) -> bool:
        """Return whether the letter still waits for this very copy."""
        return self.state is not None and is_out(self.state, self.replays, self.generation)

    def is_needed(self, cap: int) -> bool:
        """Return whether what follows by its key waits, once the item is skipped."""
        return self.state is not None and still_needed(self.state, self.replays, cap)


class Going(Struct, frozen=True):
    """Of some planned items, what may go out and what not."""

    ordinals: Sequence[int]  # of all
    letters: list[Candidate]  # that may go
    left: dict[int, None]  # ordinals that stay, also those whose letter is gone
    held: set[int]  # numbers of letters that stay, and hold back what follows by their key
    past_cap: list[Candidate]
    shifts: Counter[tuple[str, str, State]]  # letters by source, group and state


def judge(
    ordinals: Sequence[int], letters: Iterable[Candidate], cap: int, leave_out: Collection[str] = ()
) -> Going:
    """
    Decide which letters of planned items may go.

    Letters whose ids are to be left out are skipped, whatever their state.
    """
    going: list[Candidate] = []
    left = dict.fromkeys(ordinals)
    held: set[int] = set()
    past_cap: list[Candidate] = []
    # Letters are much alike: each question is answered once.
    verdicts = cache(lambda state, replays: take(State(state), replays, cap))
    moved: Counter[tuple[str, str, str]] = Counter()
    for one in letters:
        if one.id in leave_out:
            continue
        before = one.state
        outcome, after = verdicts(before, one.replays)
        if outcome is Outcome.SENDING:
            going.append(one)
            del left[one.ordinal]
            moved[one.source, one.fingerprint, before] += 1
            continue
        if still_needed(State(before), one.replays, cap):
            held.add(one.seq)
        if after is State.QUARANTINED and before != after:
            past_cap.append(one)
    shifts: Counter[tuple[str, str, State]] = Counter()
    for (source, fingerprint, before), n in moved.items():
        shifts[source, fingerprint, State(before)] -= n
        shifts[source, fingerprint, State.REPLAYING] += n
    return Going(ordinals, going, left, held, past_cap, shifts)


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
    """Return whether this copy is the one its letter is waiting for."""
    return state is State.REPLAYING and replays == generation


def came_back(replays: int, cap: int | None) -> State:
    """Return where a letter goes whose replayed copy failed."""
    if cap is not None and replays >= cap:
        return State.QUARANTINED
    return State.PENDING


def landing(
    state: State, replays: int, generation: int, outcome: Outcome, cap: int | None
) -> State | None:
    """
    Return where a letter goes by news of one of its copies; None: it stays where it is.

    A letter that somebody reopened while its copy was out is done when that copy is
    handled after all: open, it would be sent once more.
    """
    if replays != generation or outcome is Outcome.UNCONFIRMED:
        return None
    if outcome is Outcome.REFUSED:
        return State.PENDING if state is State.REPLAYING else None
    if outcome is Outcome.PRESUMED:
        return State.REPLAYED if state is State.REPLAYING else None
    if outcome is Outcome.CONFIRMED:
        return State.REPLAYED if state in OPEN | {State.REPLAYING} else None
    if state in {State.REPLAYING, State.REPLAYED}:
        return came_back(replays, cap)
    return None


def concluded(
    state: CopyState, sent_at: datetime, now: datetime, presume_after: float | None
) -> Outcome | None:
    """
    Return the outcome of a copy that went to a consumer of others; None: not yet.

    Without `presume_after` seconds, or with 0, nothing is presumed.

    One that the server knows to be there, or dead, is never presumed to be handled:
    the dead one has failed once it is drained.
    """
    if state is CopyState.HANDLED:
        return Outcome.CONFIRMED
    if state is not CopyState.UNKNOWN or not presume_after:
        return None
    waited = (now - sent_at).total_seconds()
    return Outcome.PRESUMED if waited >= presume_after else None


def heard(news: Iterable[tuple[str, int, Outcome]]) -> dict[tuple[str, int], Outcome]:
    """News by letter and generation; told both ways at once, the copy has failed."""
    outcomes: dict[tuple[str, int], Outcome] = {}
    for letter_id, generation, outcome in news:
        if outcomes.get((letter_id, generation)) is not Outcome.FAILED:
            outcomes[letter_id, generation] = outcome
    return outcomes


def check_news(outcomes: Iterable[Outcome]) -> None:
    """Reject outcomes that settling cannot record."""
    for outcome in outcomes:
        if outcome not in SETTLED_FROM:
            raise ConfigError(
                f"{outcome} is not an outcome to settle a replayed copy with:"
                f" use one of {', '.join(SETTLED_FROM)}"
            )


def runs_as(before: str, state: CampaignState, by: By) -> str:
    """The principal a campaign runs as, once `by` has put it into this state."""
    return by.principal if state is CampaignState.RUNNING else before


def has_begun(campaign: str) -> Conflict:
    """Letters cannot be added behind those that waited for their key."""
    return Conflict(
        f"campaign {campaign} has begun to send letters of keys in order, so nothing"
        " can be added to it: start another one"
    )


def check_change(campaign: str, old: CampaignState, new: CampaignState) -> None:
    """Reject changes to a campaign that has ended."""
    if old in _ENDED and new is not old:
        raise Conflict(f"campaign {campaign} is {old} and can no longer become {new}")
