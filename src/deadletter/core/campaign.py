"""Replay campaigns: their letters, precautions, steps and outcomes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from .errors import ConfigError
from .letter import State

# Verdicts on letters before they are sent, with the default treatment of each.
#
# The command, the HTTP API and the client all follow this table.


class Verdict(StrEnum):
    """The expected result of replaying one letter; the first verdict that applies."""

    WRONG_STATE = "wrong-state"  # not sent: replaying, replayed, closed, discarded
    PAST_CAP = "past-cap"  # not sent: quarantined instead
    ELSEWHERE = "elsewhere"  # not sent: it was drained from another server
    PROCESSED = "already-processed"  # the ledger has recorded it as handled
    UNREADABLE = "unreadable"  # its body does not fit the handler
    ID_IN_USE = "id-in-use"  # another job has its id; its copy goes under a new one
    EXPIRED = "expired"  # past its expiry; its copy is sent without one
    NO_MAILBOX = "no-mailbox"  # that mailbox does not exist yet
    CREDENTIALS = "credentials"  # its headers hold credentials, which may have expired
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
    """Return the treatment of a verdict, given the verdicts skipped and included."""
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


# Precautions: a few letters are sent first, and their outcomes decide about the rest.

ENOUGH: Final = 20  # outcomes before a share is judged
USUAL: Final = 0.5
CAREFUL: Final = 0.1  # with a canary or a ramp
GROWTH: Final = 10  # times as many at each step of a ramp

Canary: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        le=100_000,
        description="Send this many letters first; send the rest after those were handled.",
    ),
]
Share: TypeAlias = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Pause the replay when more than this share of the letters fails"
        " again; 1 means never. Without a canary or a ramp, 20 letters are sent first,"
        " and ten times as many at each step. Default: 0.1 with a canary or a ramp,"
        " else 0.5.",
    ),
]


KeyOrder: TypeAlias = Annotated[
    bool,
    Meta(
        description="Send letters of one key one after the other, each after the one"
        " before it was confirmed. If false, letters are only sent oldest first."
    ),
]
Skipped: TypeAlias = Annotated[
    tuple[Verdict, ...], Meta(max_length=8, description="Verdicts of letters to leave out.")
]
Included: TypeAlias = Annotated[
    tuple[Verdict, ...],
    Meta(
        max_length=8,
        description="Verdicts of letters to send without confirmation. By default"
        " `already-processed` and `id-in-use` are left out, and `expired` needs"
        " confirmation. Letters with `id-in-use` are sent under a new id.",
    ),
]


PresumeAfter: TypeAlias = Annotated[
    float,
    Meta(
        ge=0,
        le=1e7,
        description="Seconds after which a letter sent to a foreign server is presumed"
        " to be handled, unless it died again; 0 means never. Default:"
        " `presume_after` of the settings.",
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
        """Return the treatment of letters with a verdict."""
        return treatment(verdict, self.skip, self.include)

    def sends(self, verdict: Verdict) -> bool:
        """Return whether letters with a verdict are sent, perhaps after confirmation."""
        return self.treats(verdict) is not Treatment.LEAVE_OUT

    @property
    def in_steps(self) -> bool:
        """Return whether the campaign waits for outcomes between steps."""
        return self.first is not None

    @property
    def first(self) -> int | None:
        """Return the number of letters in the first step; None means all."""
        if self.canary is not None:
            return self.canary
        if self.ramp:
            return 1
        # An explicit share must hold even if sending is faster than the outcomes.
        return ENOUGH if self.halt_on is not None and self.halt_on < 1 else None

    @property
    def grows(self) -> bool:
        """Return whether steps follow the first one."""
        return self.ramp or self.canary is None

    @property
    def share(self) -> float:
        """The share of letters that may fail again."""
        if self.halt_on is not None:
            return self.halt_on
        return CAREFUL if self.in_steps else USUAL

    def is_too_much(self, failed: int, of: int) -> bool:
        """Return whether `failed` of `of` letters exceed the allowed share."""
        return failed > 0 and failed / of > self.share

    def bound(self, sent: int, settled: int) -> int | None:
        """Return how many letters may be out before the next check; None means all."""
        return next((n for n in self._steps() if n > min(sent, settled)), None)

    def steps(self, total: int) -> tuple[int, ...]:
        """Return how many of `total` letters are out at the end of each step, all at last."""
        return (*takewhile(lambda n: n < total, self._steps()), total)

    def ends_with(self, sent: int) -> bool:
        """Return whether a step ends after `sent` letters."""
        return next((n for n in self._steps() if n >= sent), None) == sent

    def _steps(self) -> Iterator[int]:
        """Yield the number of letters out at the end of each step."""
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
    """Encode precautions for a store; None if they are the defaults."""
    return None if care == AT_ONCE else msgspec.json.encode(care).decode()


def read(kept: str | None) -> Care:
    """Decode stored precautions."""
    return AT_ONCE if kept is None else msgspec.json.decode(kept, type=Care)


class Send(Struct, frozen=True):
    """Send more letters: at most `most`, or all if None."""

    most: int | None = None


class Wait(Struct, frozen=True):
    """Send no more letters until this number of outcomes has arrived."""

    outcomes: int


class Halt(Struct, frozen=True):
    """Send no more letters until somebody resumes the campaign."""

    reason: str


Step: TypeAlias = Send | Wait | Halt


def next_step(care: Care, sent: int, handled: int, failed: int) -> Step:
    """Return the next step, given the letters sent, handled and failed so far."""
    settled = handled + failed
    bound = care.bound(sent, settled)
    if bound is not None and care.is_too_much(failed, bound):
        return Halt(f"{_failed(failed, f'the first {bound:,}')}, {_allowed(care)}")
    # The end of a step is judged however few letters it had.
    enough = sent if care.ends_with(sent) else ENOUGH
    if settled >= enough and care.is_too_much(failed, settled):
        return Halt(f"{_failed(failed, f'{settled:,}')}, {_allowed(care)}")
    if bound is None:
        return Send()
    return Send(bound - sent) if sent < bound else Wait(bound - settled)


def judge_whole_keys(care: Care, settled: int, failed: int) -> Halt | None:
    """Return a halt if too many letters failed in a step of whole keys, else None."""
    if settled and care.is_too_much(failed, settled):
        return Halt(f"{_failed(failed, f'the first {settled:,}')}, {_allowed(care)}")
    return None


def whole_keys(sizes: Sequence[int], most: int) -> int:
    """
    Return how many keys to start so that at least `most` letters are sent.

    Each size is the number of letters of one key; a letter without a key counts as a key.
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
    SENDING = "sending"  # recorded before sending; it may or may not have been sent
    SENT = "sent"  # the broker has it; its consumer has not settled it yet
    CONFIRMED = "confirmed"  # handled
    PRESUMED = "presumed"  # it did not die again within `presume_after`
    FAILED = "failed"  # back in the office, perhaps after it was confirmed
    UNCONFIRMED = "unconfirmed"  # nobody waits any more; an outcome may still arrive
    SKIPPED = "skipped"  # not open any more, past the cap, or processed meanwhile
    REFUSED = "refused"  # not sent: the server it goes to does not take it
    HELD = "held"  # not sent: one before it of its key was not confirmed


class CampaignState(StrEnum):
    """The states of a campaign."""

    PLANNED = "planned"  # nothing is sent before somebody starts it
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class KeptPlan(Struct, frozen=True, kw_only=True):
    """
    The plan of a campaign whose letters are judged after they were frozen.

    The letters and their verdicts are kept beside it, see `PlanSlice`.
    """

    total: int  # letters that were frozen
    judged: int = 0  # of these, in sending order
    is_judged: bool = False  # all of them, or as many as the limit needs
    judged_at: datetime | None = None  # when the first of the verdicts was found
    verdicts: dict[Verdict, int] = {}
    targets: dict[Verdict, dict[str, int]] = {}  # letters by mailbox they would go to
    gone: int = 0  # deleted before they were judged
    limit: int | None = None  # the most letters to send
    more: bool = False  # the limit cut it off
    names_server: bool = False  # somebody chose `through`
    agreed: tuple[Verdict, ...] | None = None  # the verdicts found when it was started
    added: int = 0  # letters looked at so far to add those that are sent
    chosen: int = 0  # letters added that are sent

    @property
    def left(self) -> int:
        """Return how many letters may still be added to the campaign."""
        return (self.judged if self.is_judged else self.total) - self.added

    def sendable(self, care: "Care") -> int:
        """Return how many of the judged letters are sent with these precautions."""
        found = sum(n for verdict, n in self.verdicts.items() if care.sends(verdict))
        return found if self.limit is None else min(found, self.limit)


class PlanSlice(Struct, frozen=True):
    """
    Some letters of a kept plan, in sending order, with the verdict on each.

    A letter that was not judged, or deleted meanwhile, has None.
    """

    letters: tuple[str, ...]
    verdicts: tuple[Verdict | None, ...] = ()


class Campaign(Struct, frozen=True, kw_only=True):
    """
    A replay of letters that are selected once, at its start.

    Letters that match the query later are not part of it.
    """

    id: str
    query: str
    created_at: datetime
    actor: str
    reason: str = ""
    owner: str = ""  # the principal who planned it; none for the command
    runs_as: str = ""  # the principal who started or resumed it; it runs while they have the right
    state: CampaignState = CampaignState.RUNNING
    to: str | None = None  # another mailbox than each letter's own
    rate: float | None = None  # letters per second; None means unlimited
    cap: int = 5  # replays of one letter before it is quarantined
    care: Care = AT_ONCE
    through: str = ""  # the foreign server that its letters go to
    plan: KeptPlan | None = None  # if its letters are judged in the background
    approved_by: str = ""  # the second person who agreed to it
    counts: dict[Outcome, int] = {}


def size_of(campaign: Campaign) -> int:
    """Return how many letters a campaign has; of a plan that was not started, how many it sends."""
    plan = campaign.plan
    if plan is not None and plan.left:
        return plan.sendable(campaign.care)
    return sum(campaign.counts.values())


def unsent(campaign: Campaign) -> int:
    """Return the number of letters that have yet to be sent."""
    counts = campaign.counts
    frozen = 0 if campaign.plan is None else campaign.plan.left
    return frozen + sum(
        counts.get(outcome, 0) for outcome in (Outcome.PLANNED, Outcome.WAITING, Outcome.SENDING)
    )


def unsettled(campaign: Campaign) -> int:
    """Return the number of copies that their consumers have not settled yet."""
    counts = campaign.counts
    return counts.get(Outcome.SENDING, 0) + counts.get(Outcome.SENT, 0)


def handled(campaign: Campaign) -> int:
    """Return the number of copies that were handled, confirmed or presumed."""
    counts = campaign.counts
    return counts.get(Outcome.CONFIRMED, 0) + counts.get(Outcome.PRESUMED, 0)


class ReplayItem(Struct, frozen=True, kw_only=True):
    """
    One letter's part in one campaign: times, actor, target and outcome.

    A time is None until the event happens. If a copy settles before its sending is recorded,
    `sent_at` stays None. An item that was confirmed and failed later has both `confirmed_at`
    and the `settled_at` of the failure.
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
"""The wait for a replay's outcome after which somebody should check."""


class Unsettled(Struct, frozen=True, kw_only=True):
    """Letters of one source that wait for the outcome of a replay."""

    source: str
    letters: int
    since: datetime | None = None  # when the first of their copies was taken


def is_any_unsettled(counts: Mapping[str, Mapping[State, int]]) -> bool:
    """Return whether any letter waits for an outcome; counts are by source and state."""
    return any(states.get(State.REPLAYING) for states in counts.values())


def unsettled_letters(
    counts: Mapping[str, Mapping[State, int]], since: Mapping[str, datetime]
) -> tuple[Unsettled, ...]:
    """Return the waiting letters by source, longest wait first."""
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
    """Return the number of waiting letters, and the time since the first has waited."""
    every = tuple(waits)
    times = [one.since for one in every if one.since is not None]
    return sum(one.letters for one in every), min(times, default=None)


# Campaigns and their items as rows, the columns in the order of the fields.

_TOLD: Final = tuple(name for name in Campaign.__struct_fields__ if name != "counts")


def campaign_row(campaign: Campaign) -> list[Any]:
    """Return the columns of a campaign, without its counts."""
    told = {name: getattr(campaign, name) for name in _TOLD}
    told |= {
        "state": campaign.state.value,
        "care": written(campaign.care),
        "plan": written_plan(campaign.plan),
    }
    return list(told.values())


def written_plan(plan: KeptPlan | None) -> str | None:
    """Encode a plan for a store."""
    return None if plan is None else msgspec.json.encode(plan).decode()


def read_plan(kept: str | None) -> KeptPlan | None:
    """Decode a stored plan."""
    return None if kept is None else msgspec.json.decode(kept, type=KeptPlan)


def written_slice(one: PlanSlice) -> str:
    """Encode some letters of a plan, with their verdicts, for a store."""
    return msgspec.json.encode(one).decode()


def read_slice(kept: str) -> PlanSlice:
    """Decode stored letters of a plan."""
    return msgspec.json.decode(kept, type=PlanSlice)


def campaign_of(row: Iterable[Any], counts: dict[Outcome, int]) -> Campaign:
    """Return the campaign in the columns of `campaign_row`."""
    told: dict[str, Any] = dict(zip(_TOLD, row, strict=True))
    told |= {
        "state": CampaignState(told["state"]),
        "care": read(told["care"]),
        "plan": read_plan(told["plan"]),
    }
    return Campaign(**told, counts=counts)


def item_of(row: Iterable[Any]) -> ReplayItem:
    """Return the item in columns that follow the order of its fields."""
    told: dict[str, Any] = dict(zip(ReplayItem.__struct_fields__, row, strict=True))
    return ReplayItem(**told | {"outcome": Outcome(told["outcome"])})
