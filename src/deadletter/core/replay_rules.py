"""
Rules of replays: the order of letters, what may be sent, and what outcomes change.

Letters are sent oldest first, by when each message was sent. Messages sent at the same moment
follow their positions on the broker, then their ids.
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
from .letter import MOVES, OPEN, By, ReviewOrder, State, sources_of
from .message import Lineage, Message

LONGEST: Final = 200  # characters of a position that count
_DIGITS: Final = 20  # of any number in a position
_number: Final = partial(re.compile(r"[0-9]+").sub, lambda found: found[0].zfill(_DIGITS))

SendOrder: TypeAlias = tuple[datetime, str, str]


def sortable_position(position: str | None) -> str | None:
    """Return a position as text that sorts like the numbers in it."""
    if position is None:
        return None
    plain = position[:LONGEST].encode("ascii", "backslashreplace").decode()
    return _number(plain.replace("\0", ""))  # which PostgreSQL rejects in text


def send_order(message: Message, position: str | None) -> SendOrder:
    """Return the sort key of a letter."""
    return message.sent_at, sortable_position(position) or "", message.id


# Rules that all stores follow.
#
# The generation of a copy is the number of the letter's replay. An outcome counts while
# that copy is out, and an outcome reported twice changes nothing. A confirmed copy may
# still fail: delivered again because its ack was lost, or in a later mailbox with its
# lineage. Then it has failed, and the letter is open again. If somebody stops waiting
# for a copy, it is `unconfirmed` until an outcome arrives. A foreign consumer reports
# nothing: a copy that has not died again within a set time is `presumed` handled.
# A copy that the server rejects is `refused`.


class CopyState(StrEnum):
    """The state of a copy, as a foreign server reports it."""

    HANDLED = "handled"  # its consumer has finished it
    DEAD = "dead"  # failed again, and not drained yet
    THERE = "there"  # it waits for its consumer, or is being handled
    UNKNOWN = "unknown"


class Arrival(StrEnum):
    """The arrival of a copy whose sending was interrupted, as a foreign server reports it."""

    ARRIVED = "arrived"  # it was sent
    MISSING = "missing"  # send it: it is not there, or duplicates are dropped
    LOST = "lost"  # the records are gone or too many: do not send it
    UNKNOWABLE = "unknowable"  # the server cannot say: send it, perhaps twice


OUT: Final = frozenset({Outcome.SENDING, Outcome.SENT})
"""Outcomes of copies that may be on their way."""

SETTLED_FROM: Final = {
    Outcome.REFUSED: frozenset({Outcome.SENDING}),
    Outcome.UNCONFIRMED: OUT,
    Outcome.PRESUMED: frozenset({Outcome.SENT}),
    Outcome.CONFIRMED: OUT | {Outcome.UNCONFIRMED, Outcome.PRESUMED},
    Outcome.FAILED: OUT | {Outcome.UNCONFIRMED, Outcome.PRESUMED, Outcome.CONFIRMED},
}
"""For each new outcome, the outcomes that it replaces."""

UNFINISHED: Final = OUT | {Outcome.PLANNED, Outcome.WAITING}
"""Outcomes of items that keep a campaign from being done."""

HANDLED: Final = frozenset({Outcome.CONFIRMED, Outcome.PRESUMED})
"""Outcomes of copies that were handled, as far as is known."""

FREES: Final = HANDLED | {Outcome.SKIPPED, Outcome.UNCONFIRMED}
"""Outcomes after which the next letter of the same key may be sent, unless it is held."""

_ENDED: Final = frozenset({CampaignState.DONE, CampaignState.CANCELLED})


def take(
    state: State, replays: int, cap: int, order: ReviewOrder = ReviewOrder.FREE
) -> tuple[Outcome, State]:
    """Return the outcome and state of a planned letter when its turn comes."""
    if state not in sources_of(State.REPLAYING, order):
        return Outcome.SKIPPED, state
    if replays < cap:
        return Outcome.SENDING, State.REPLAYING
    if State.QUARANTINED in MOVES[state]:
        return Outcome.SKIPPED, State.QUARANTINED
    return Outcome.SKIPPED, state


def still_needed(state: State, replays: int, cap: int) -> bool:
    """
    Return whether a skipped letter has yet to be handled.

    It is out in another campaign, or past the cap. Later letters of its key wait.
    """
    if state is State.REPLAYING:
        return True
    return State.REPLAYING in MOVES[state] and replays >= cap


def is_done_with(outcome: Outcome, state: State) -> bool:
    """
    Return whether the outcome of a copy lets the next letter of its key be sent.

    `state` is the state of the letter when the outcome arrived. A letter that nobody waits for
    any more counts as failed unless somebody closed it, so later letters of its key are held.
    """
    if outcome is Outcome.UNCONFIRMED:
        return state is State.CLOSED
    return outcome in HANDLED


READY: Final = frozenset(state for state in State if take(state, 0, 1)[0] is Outcome.SENDING)
"""States of letters that may be sent, if they are not past the cap."""


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
    """The planned items that may be sent, and those that may not."""

    ordinals: Sequence[int]  # of all
    letters: list[Candidate]  # that may go
    left: dict[int, None]  # ordinals that stay, also those whose letter is gone
    held: set[int]  # numbers of letters that stay, and hold back what follows by their key
    past_cap: list[Candidate]
    shifts: Counter[tuple[str, str, State]]  # letters by source, group and state


def judge(
    ordinals: Sequence[int],
    letters: Iterable[Candidate],
    cap: int,
    leave_out: Collection[str] = (),
    order: ReviewOrder = ReviewOrder.FREE,
) -> Going:
    """
    Decide which letters of planned items may go.

    Letters with ids in `leave_out` are skipped, whatever their state.
    """
    going: list[Candidate] = []
    left = dict.fromkeys(ordinals)
    held: set[int] = set()
    past_cap: list[Candidate] = []
    # Letters are much alike: each question is answered once.
    verdicts = cache(lambda state, replays: take(State(state), replays, cap, order))
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
    Return the message as a copy of its letter, with body and headers unchanged.

    An expiry that has passed is removed: the copy would be buried at once.
    """
    expires_at = message.expires_at
    if expires_at is not None and expires_at <= now:
        expires_at = None
    return replace(message, lineage=lineage, expires_at=expires_at)


def is_out(state: State, replays: int, generation: int) -> bool:
    """Return whether this copy is the one that its letter waits for."""
    return state is State.REPLAYING and replays == generation


def came_back(replays: int, cap: int | None) -> State:
    """Return the new state of a letter whose replayed copy failed."""
    if cap is not None and replays >= cap:
        return State.QUARANTINED
    return State.PENDING


def landing(
    state: State, replays: int, generation: int, outcome: Outcome, cap: int | None
) -> State | None:
    """
    Return the new state of a letter by the outcome of one of its copies; None: no change.

    A letter that was reopened while its copy was out is done when that copy is handled: an open
    letter could be sent again.
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
    Return the outcome of a copy sent to a foreign consumer; None: not yet known.

    Without `presume_after` seconds, or with 0, nothing is presumed. A copy that the server
    reports as waiting or dead is never presumed handled: a dead one has failed once it is
    drained.
    """
    if state is CopyState.HANDLED:
        return Outcome.CONFIRMED
    if state is not CopyState.UNKNOWN or not presume_after:
        return None
    waited = (now - sent_at).total_seconds()
    return Outcome.PRESUMED if waited >= presume_after else None


def heard(news: Iterable[tuple[str, int, Outcome]]) -> dict[tuple[str, int], Outcome]:
    """Return outcomes by letter and generation; of contradicting ones, `failed` counts."""
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
    """Return the principal that a campaign runs as after `by` set this state."""
    return by.principal if state is CampaignState.RUNNING else before


def has_begun(campaign: str) -> Conflict:
    """Return the error for letters added to a campaign that sends by key and has begun."""
    return Conflict(
        f"campaign {campaign} has begun to send letters of keys in order, so nothing"
        " can be added to it: start another one"
    )


def check_change(campaign: str, old: CampaignState, new: CampaignState) -> None:
    """Reject changes to a campaign that has ended."""
    if old in _ENDED and new is not old:
        raise Conflict(f"campaign {campaign} is {old} and can no longer become {new}")
