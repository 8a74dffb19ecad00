"""
How carefully letters are sent back, and when that stops by itself.

A few go first. What became of them decides whether more go, and how many.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from .errors import ConfigError
from .verdicts import Treatment, Verdict, check_verdicts, treatment

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
    tuple[Verdict, ...],
    Meta(max_length=8, description="Verdicts whose letters are left out."),
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
    """How careful a campaign is: all at once, unless it is told otherwise."""

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
        """Whether letters of a verdict are sent, though somebody may be asked first."""
        return self.treats(verdict) is not Treatment.LEAVE_OUT

    @property
    def in_steps(self) -> bool:
        """Whether it waits for outcomes before it goes on."""
        return self.first is not None

    @property
    def first(self) -> int | None:
        """How many go first; None is all of them."""
        if self.canary is not None:
            return self.canary
        if self.ramp:
            return 1
        # Who says how many may fail wants it to hold, also when sending is quick.
        return ENOUGH if self.halt_on is not None and self.halt_on < 1 else None

    @property
    def grows(self) -> bool:
        """Whether there are more steps than the first."""
        return self.ramp or self.canary is None

    @property
    def share(self) -> float:
        """The share of letters that may fail again."""
        if self.halt_on is not None:
            return self.halt_on
        return CAREFUL if self.in_steps else USUAL

    def is_too_much(self, failed: int, of: int) -> bool:
        """Whether more of so many failed again than may."""
        return failed > 0 and failed / of > self.share

    def bound(self, sent: int, settled: int) -> int | None:
        """How many may be out before the next look back; None is all of them."""
        return next((n for n in self._steps() if n > min(sent, settled)), None)

    def ends_with(self, sent: int) -> bool:
        """Whether this many are a whole step."""
        return next((n for n in self._steps() if n >= sent), None) == sent

    def _steps(self) -> Iterator[int]:
        """How many are out at the end of each step."""
        step = self.first
        while step is not None:
            yield step
            step = step * GROWTH if self.grows else None


AT_ONCE: Final = Care()


def checked(care: Care) -> Care:
    """The same, once it is known to make sense."""
    try:
        made = msgspec.convert(msgspec.to_builtins(care), Care)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a replay cannot be sent with this care: {error}") from error
    check_verdicts(made.skip, made.include)
    return made


def written(care: Care) -> str | None:
    """As stores keep it; nothing where there is nothing to say."""
    return None if care == AT_ONCE else msgspec.json.encode(care).decode()


def read(kept: str | None) -> Care:
    """What was kept."""
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
    """What to do when so many were sent, and so many of them have these outcomes."""
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
