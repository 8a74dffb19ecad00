"""A replay campaign: which letters go back, how fast, and what became of each."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from .errors import ConfigError
from .letter import State

# Verdicts on letters before they are sent back, and what happens to each by default.
#
# Every surface follows this one table: the command, the HTTP API, the client.


class Verdict(StrEnum):
    """The expected result of replaying one letter; the first verdict that applies."""

    WRONG_STATE = "wrong-state"  # not sent: replaying, replayed, closed, discarded
    PAST_CAP = "past-cap"  # not sent: quarantined instead
    ELSEWHERE = "elsewhere"  # not sent: it was drained from another server
    PROCESSED = "already-processed"  # the ledger has seen it handled meanwhile
    UNREADABLE = "unreadable"  # its body does not fit the handler: it would die at once
    ID_IN_USE = "id-in-use"  # another job has its id; its copy goes under a new one
    EXPIRED = "expired"  # too late by its own word; its copy goes without the expiry
    NO_MAILBOX = "no-mailbox"  # nobody has made or worked that mailbox yet
    CREDENTIALS = "credentials"  # its headers hold some, which may be stale by now
    ORDERED = "ordered"  # newer messages of its key may have gone ahead
    READY = "ready"


class Treatment(StrEnum):
    """The treatment of letters with one verdict: send, leave out or ask."""

    SEND = "send"
    LEAVE_OUT = "leave-out"
    ASK = "ask"  # sent if somebody agrees


DEFAULTS: Final = {
    Verdict.WRONG_STATE: Treatment.LEAVE_OUT,
    Verdict.PAST_CAP: Treatment.LEAVE_OUT,
    Verdict.ELSEWHERE: Treatment.LEAVE_OUT,
    Verdict.PROCESSED: Treatment.LEAVE_OUT,
    Verdict.UNREADABLE: Treatment.LEAVE_OUT,
    Verdict.ID_IN_USE: Treatment.LEAVE_OUT,
    Verdict.EXPIRED: Treatment.ASK,
    Verdict.NO_MAILBOX: Treatment.SEND,
    Verdict.CREDENTIALS: Treatment.SEND,
    Verdict.ORDERED: Treatment.SEND,
    Verdict.READY: Treatment.SEND,
}
"""The default treatment of each verdict."""

BLOCKED: Final = frozenset({Verdict.WRONG_STATE, Verdict.PAST_CAP, Verdict.ELSEWHERE})
"""Verdicts with which a letter is never sent; including them is an error."""


def treatment(
    verdict: Verdict, skip: Collection[Verdict], include: Collection[Verdict]
) -> Treatment:
    """Return what is done with letters of a verdict, given what somebody said."""
    if verdict in skip:
        return Treatment.LEAVE_OUT
    return Treatment.SEND if verdict in include else DEFAULTS[verdict]


def check_verdicts(skip: Collection[Verdict], include: Collection[Verdict]) -> None:
    """Reject verdicts that are never sent, and verdicts both skipped and included."""
    for verdict in sorted(BLOCKED.intersection(include)):
        allowed = ", ".join(one for one in Verdict if one not in BLOCKED)
        raise ConfigError(
            f"letters with the verdict {verdict} are never sent: include one of {allowed}"
        )
    for verdict in sorted(set(skip).intersection(include)):
        raise ConfigError(f"the verdict {verdict} is both skipped and included: name it once")


# How carefully letters are sent back, and when that stops by itself.
#
# A few go first. What became of them decides whether more go, and how many.

ENOUGH: Final = 20  # outcomes from which on a share says something
USUAL: Final = 0.5
CAREFUL: Final = 0.1  # where there is a canary or a ramp
GROWTH: Final = 10  # times as many at each step of a ramp

Canary: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=100_000,
        description="So many letters go first; the others when those were handled.",
    ),
]
Share: TypeAlias = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="It stops by itself when a larger share of the letters than this"
        " fails again; 1 is never. Said alone, 20 letters go first, and ten times as"
        " many at each step. Not said, it is 0.1 with a canary or a ramp, else 0.5.",
    ),
]


KeyOrder: TypeAlias = Annotated[
    bool,
    Meta(
        description="Send letters of one key one after the other: the next one when"
        " the one before it was confirmed. False: only oldest first."
    ),
]
Skipped: TypeAlias = Annotated[
    tuple[Verdict, ...], Meta(max_length=8, description="Verdicts whose letters are left out.")
]
Included: TypeAlias = Annotated[
    tuple[Verdict, ...],
    Meta(
        max_length=8,
        description="Verdicts whose letters are sent, without a question:"
        " `already-processed` is left out otherwise, `expired` is asked about."
        " `id-in-use` is left out otherwise, and is sent under a new id.",
    ),
]


PresumeAfter: TypeAlias = Annotated[
    float,
    Meta(
        ge=0,
        le=1e7,
        description="Seconds after which a letter that went back to a server of"
        " others is presumed to be handled, unless it died again. 0 is never. Not"
        " said, it is `presume_after` of the settings.",
    ),
]


class Care(Struct, frozen=True, kw_only=True):
    """The precautions of a campaign; by default all letters are sent at once."""

    canary: Canary | None = None
    ramp: bool = False  # then ten times as many at each step: 1, 10, 100 …
    halt_on: Share | None = None
    key_order: KeyOrder = True
    skip: Skipped = ()
    include: Included = ()
    presume_after: PresumeAfter | None = None  # only where a campaign goes `through`

    def treats(self, verdict: Verdict) -> Treatment:
        """Return what is done with letters of a verdict."""
        return treatment(verdict, self.skip, self.include)

    def sends(self, verdict: Verdict) -> bool:
        """Return whether letters of a verdict are sent, though somebody may be asked first."""
        return self.treats(verdict) is not Treatment.LEAVE_OUT

    @property
    def in_steps(self) -> bool:
        """Return whether it waits for outcomes before it goes on."""
        return self.first is not None

    @property
    def first(self) -> int | None:
        """Return how many go first; None is all of them."""
        if self.canary is not None:
            return self.canary
        if self.ramp:
            return 1
        # Who says how many may fail wants it to hold, also when sending is quick.
        return ENOUGH if self.halt_on is not None and self.halt_on < 1 else None

    @property
    def grows(self) -> bool:
        """Return whether there are more steps than the first."""
        return self.ramp or self.canary is None

    @property
    def share(self) -> float:
        """The share of letters that may fail again."""
        if self.halt_on is not None:
            return self.halt_on
        return CAREFUL if self.in_steps else USUAL

    def is_too_much(self, failed: int, of: int) -> bool:
        """Return whether more of so many failed again than may."""
        return failed > 0 and failed / of > self.share

    def bound(self, sent: int, settled: int) -> int | None:
        """Return how many may be out before the next look back; None is all of them."""
        return next((n for n in self._steps() if n > min(sent, settled)), None)

    def ends_with(self, sent: int) -> bool:
        """Return whether this many are a whole step."""
        return next((n for n in self._steps() if n >= sent), None) == sent

    def _steps(self) -> Iterator[int]:
        """Return how many are out at the end of each step."""
        step = self.first
        while step is not None:
            yield step
            step = step * GROWTH if self.grows else None


AT_ONCE: Final = Care()


def checked(care: Care) -> Care:
    """Return validated precautions; raise ConfigError if they are invalid."""
    try:
        made = msgspec.convert(msgspec.to_builtins(care), Care)
    except msgspec.ValidationError as error:
        raise ConfigError(f"invalid precautions of a replay: {error}") from error
    check_verdicts(made.skip, made.include)
    return made


def written(care: Care) -> str | None:
    """As stores keep it; nothing where there is nothing to say."""
    return None if care == AT_ONCE else msgspec.json.encode(care).decode()


def read(kept: str | None) -> Care:
    """Return what was kept."""
    return AT_ONCE if kept is None else msgspec.json.decode(kept, type=Care)


class Send(Struct, frozen=True):
    """Go on, with at most so many; None is as many as one likes."""

    most: int | None = None


class Wait(Struct, frozen=True):
    """Send no more before so many of those sent have an outcome."""

    outcomes: int


class Halt(Struct, frozen=True):
    """Send no more before somebody has had a look."""

    reason: str


Step: TypeAlias = Send | Wait | Halt


def next_step(care: Care, sent: int, handled: int, failed: int) -> Step:
    """Return what to do when so many were sent, and so many of them have these outcomes."""
    settled = handled + failed
    bound = care.bound(sent, settled)
    if bound is not None and care.is_too_much(failed, bound):
        return Halt(f"{_failed(failed, f'the first {bound:,}')}, {_allowed(care)}")
    # The end of a step says something, however few they were.
    enough = sent if care.ends_with(sent) else ENOUGH
    if settled >= enough and care.is_too_much(failed, settled):
        return Halt(f"{_failed(failed, f'{settled:,}')}, {_allowed(care)}")
    if bound is None:
        return Send()
    return Send(bound - sent) if sent < bound else Wait(bound - settled)


def judge_whole_keys(care: Care, settled: int, failed: int) -> Halt | None:
    """Return why to stop after a step that took whole keys; None: go on."""
    if settled and care.is_too_much(failed, settled):
        return Halt(f"{_failed(failed, f'the first {settled:,}')}, {_allowed(care)}")
    return None


def whole_keys(sizes: Sequence[int], most: int) -> int:
    """
    Return how many keys to start so that at least `most` letters go in all.

    A size is the number of letters of a key; a letter without a key is one of its own.
    """
    letters = 0
    for keys, size in enumerate(sizes):
        if letters >= most:
            return keys
        letters += size
    return len(sizes) if most > 0 else 0


def _failed(failed: int, of: str) -> str:
    return f"{failed:,} of {of} failed again"


def _allowed(care: Care) -> str:
    return f"where {care.share * 100:.3g}% may"


class Outcome(StrEnum):
    """The outcome of one letter in one campaign."""

    PLANNED = "planned"
    WAITING = "waiting"  # for the letter before it of its key to be confirmed
    SENDING = "sending"  # intent recorded; the send may or may not have happened
    SENT = "sent"  # the broker has it; its consumer has not settled it yet
    CONFIRMED = "confirmed"  # handled
    PRESUMED = "presumed"  # it did not die again in the time that was stated
    FAILED = "failed"  # back in the office, perhaps after it was confirmed
    UNCONFIRMED = "unconfirmed"  # somebody stopped waiting; an outcome may still come
    SKIPPED = "skipped"  # not open any more, past the cap, or processed meanwhile
    REFUSED = "refused"  # not sent: the server it goes to does not take it
    HELD = "held"  # not sent: one before it of its key was not confirmed


class CampaignState(StrEnum):
    """The states of a campaign."""

    PLANNED = "planned"  # nothing is sent before somebody says so
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class Campaign(Struct, frozen=True, kw_only=True):
    """
    Letters being sent back, chosen once and for all at the start.

    New letters that match the same query are not part of it.
    """

    id: str
    query: str
    created_at: datetime
    actor: str
    reason: str = ""
    owner: str = ""  # the principal who planned it; none for the command
    runs_as: str = ""  # the principal who let it run last: sent while they may
    state: CampaignState = CampaignState.RUNNING
    to: str | None = None  # another mailbox than each letter's own
    rate: float | None = None  # letters a second; None is as fast as it goes
    cap: int = 5  # replays of one letter before it is quarantined
    care: Care = AT_ONCE
    through: str = ""  # the server of others that its letters go back to
    counts: dict[Outcome, int] = {}


def unsent(campaign: Campaign) -> int:
    """Letters of it that have yet to be sent."""
    counts = campaign.counts
    return sum(
        counts.get(outcome, 0) for outcome in (Outcome.PLANNED, Outcome.WAITING, Outcome.SENDING)
    )


def unsettled(campaign: Campaign) -> int:
    """Copies whose consumer has not settled them yet."""
    counts = campaign.counts
    return counts.get(Outcome.SENDING, 0) + counts.get(Outcome.SENT, 0)


def handled(campaign: Campaign) -> int:
    """Copies that were handled, as far as is known or presumed."""
    counts = campaign.counts
    return counts.get(Outcome.CONFIRMED, 0) + counts.get(Outcome.PRESUMED, 0)


class ReplayItem(Struct, frozen=True, kw_only=True):
    """
    One letter's part in one campaign: when, by whom, where to, and its outcome.

    A time is None while that has not happened. A copy that was faster than the
    news of its sending has an outcome but no `sent_at`. One that was confirmed and
    failed again later has both times: `confirmed_at`, and `settled_at` of the failure.
    """

    letter_id: str
    campaign: str
    actor: str
    reason: str = ""
    to: str | None = None  # another mailbox than the letter's own
    generation: int = 0  # of the copy; 0 while none was made
    outcome: Outcome = Outcome.PLANNED
    taken_at: datetime | None = None
    sent_at: datetime | None = None
    settled_at: datetime | None = None
    confirmed_at: datetime | None = None  # only of one that failed again later
    why: str = ""  # it was refused

    @property
    def failed_late(self) -> bool:
        """Return whether it was confirmed, and failed again later."""
        return self.confirmed_at is not None


# Letters that wait for the outcome of a replay, by source.

LONG_WAIT: Final = timedelta(hours=1)
"""For the outcome of a replay, before somebody should have a look."""


class Unsettled(Struct, frozen=True, kw_only=True):
    """Letters of one source that wait for the outcome of a replay."""

    source: str
    letters: int
    since: datetime | None = None  # when the first of their copies was taken


def is_any_unsettled(counts: Mapping[str, Mapping[State, int]]) -> bool:
    """Return whether there is a letter that waits, of letters counted by source and state."""
    return any(states.get(State.REPLAYING) for states in counts.values())


def unsettled_letters(
    counts: Mapping[str, Mapping[State, int]], since: Mapping[str, datetime]
) -> tuple[Unsettled, ...]:
    """Return what waits by source, the longest wait first."""
    found = [
        Unsettled(source=source, letters=letters, since=since.get(source))
        for source, states in counts.items()
        if (letters := states.get(State.REPLAYING, 0))
    ]
    known = sorted(
        (one for one in found if one.since is not None), key=lambda one: (one.since, one.source)
    )
    return (*known, *(one for one in found if one.since is None))


def together(waits: Iterable[Unsettled]) -> tuple[int, datetime | None]:
    """Return how many letters wait in all, and since when the first of them does."""
    every = tuple(waits)
    times = [one.since for one in every if one.since is not None]
    return sum(one.letters for one in every), min(times, default=None)


# Campaigns and their items as rows, the columns in the order of the fields.

_TOLD: Final = tuple(name for name in Campaign.__struct_fields__ if name != "counts")


def campaign_row(campaign: Campaign) -> list[Any]:
    """Return the columns of a campaign, without its counts."""
    told = {name: getattr(campaign, name) for name in _TOLD}
    told |= {"state": campaign.state.value, "care": written(campaign.care)}
    return list(told.values())


def campaign_of(row: Iterable[Any], counts: dict[Outcome, int]) -> Campaign:
    """Return the campaign in the columns of `campaign_row`."""
    told: dict[str, Any] = dict(zip(_TOLD, row, strict=True))
    told |= {"state": CampaignState(told["state"]), "care": read(told["care"])}
    return Campaign(**told, counts=counts)


def item_of(row: Iterable[Any]) -> ReplayItem:
    """Return the item in columns that follow the order of its fields."""
    told: dict[str, Any] = dict(zip(ReplayItem.__struct_fields__, row, strict=True))
    return ReplayItem(**told | {"outcome": Outcome(told["outcome"])})
