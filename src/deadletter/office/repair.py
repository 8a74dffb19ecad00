"""
Repair: the same change to the bodies of many letters.

Each letter gets a verdict first. A repair is an ordinary edit of each letter that fits: it
keeps the original, is compare-and-set with the revision, and is recorded in the audit.
Repeating a repair changes nothing, so one that ended early can simply be begun again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct, structs

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import OPEN, By, Changes, DeadLetter
from deadletter.core.message import Message
from deadletter.core.patch import NotJson, OtherShape, Patch
from deadletter.ports import LetterStore

from .batches import batched, whole_letters
from .diff import Difference, differences
from .preflight import Fits
from .verbs import Moved

SAMPLES: Final = 5
MOST_SAMPLES: Final = 50
_STEP: Final = 200  # letters of one step
_GONE: Final = "no longer there"
_MEANWHILE: Final = "changed meanwhile"


class RepairVerdict(StrEnum):
    """What a repair does with a letter, or why it leaves it as it is."""

    CHANGE = "change"
    UNCHANGED = "unchanged"
    OTHER_VALUE = "other_value"
    OTHER_SHAPE = "other_shape"
    NOT_JSON = "not_json"
    UNREADABLE = "unreadable"
    WRONG_STATE = "wrong_state"
    GONE = "gone"


WHY_NOT: Final[Mapping[RepairVerdict, str]] = {
    RepairVerdict.UNCHANGED: "already have these values",
    RepairVerdict.OTHER_VALUE: "have another value there",
    RepairVerdict.OTHER_SHAPE: "have another shape there",
    RepairVerdict.NOT_JSON: "are not JSON that can be changed",
    RepairVerdict.UNREADABLE: "would not fit the type of their handler",
    RepairVerdict.WRONG_STATE: "are not open",
    RepairVerdict.GONE: _GONE,
}
"""Why letters with a verdict are left as they are, in words; the keys of `Moved.skipped`."""


class LetterRepair(Struct, frozen=True):
    """The verdict on one letter."""

    letter_id: str
    verdict: RepairVerdict


class RepairSample(Struct, frozen=True):
    """A letter and what a repair would change in it; secrets are masked."""

    letter_id: str
    differences: tuple[Difference, ...]


class RepairPlan(Struct, frozen=True, kw_only=True):
    """The expected effects of a repair."""

    total: int = 0
    verdicts: dict[RepairVerdict, int] = {}
    letters: dict[RepairVerdict, tuple[str, ...]] = {}  # the first ids of each verdict
    samples: tuple[RepairSample, ...] = ()  # of those that would change

    @property
    def changes(self) -> int:
        """Return how many letters would change."""
        return self.verdicts.get(RepairVerdict.CHANGE, 0)


class RepairStep(Struct, frozen=True):
    """
    One part of a repair: the ids that it changed, and the result so far.

    `revisions` are those of the letters that were edited for the first time: for them, the
    original is what was there before.
    """

    ids: tuple[str, ...]
    so_far: Moved
    revisions: Mapping[str, int] = {}


class RepairsProtocol(Protocol):
    """Repairs of an office: `Repairs` here, or the same over HTTP."""

    async def plan(self, ids: Iterable[str], patch: Patch, *, samples: int = SAMPLES) -> RepairPlan:
        """
        Return what a repair would do; nothing is changed.

        Args:
            ids: Whole ids of letters.
            patch: The change.
            samples: How many differences to show, and how many ids of each verdict.
        """

    async def apply(self, ids: Iterable[str], patch: Patch, by: By) -> Moved:
        """
        Change the letters that fit; return how many were left as they are, and why.

        Raises ConfigError without a reason.
        """

    async def undo(self, ids: Iterable[str], by: By) -> Moved:
        """Give edited letters their original messages back; raises ConfigError without a reason."""


class Repairs:
    """The repairs of an office that is open in this process."""

    def __init__(self, store: LetterStore, fits: Fits | None = None) -> None:
        self._store = store
        self._fits = fits

    @property
    def checks_types(self) -> bool:
        """Whether it is known which bodies fit the types of their handlers."""
        return self._fits is not None

    async def plan(self, ids: Iterable[str], patch: Patch, *, samples: int = SAMPLES) -> RepairPlan:
        """Return what a repair would do; nothing is changed."""
        if not 0 <= samples <= MOST_SAMPLES:
            raise ConfigError(f"samples must be 0 to {MOST_SAMPLES}, got {samples}")
        verdicts: Counter[RepairVerdict] = Counter()
        first: dict[RepairVerdict, list[str]] = {}
        async for judged in self.judge_in_steps(ids, patch):
            verdicts.update(one.verdict for one in judged)
            for one in judged:
                names = first.setdefault(one.verdict, [])
                if len(names) < samples:
                    names.append(one.letter_id)
        found = await self.samples(first.get(RepairVerdict.CHANGE, ()), patch)
        return RepairPlan(
            total=verdicts.total(),
            verdicts={one: verdicts[one] for one in RepairVerdict if verdicts[one]},
            letters={one: tuple(first[one]) for one in RepairVerdict if first.get(one)},
            samples=tuple(found),
        )

    async def judge_in_steps(
        self, ids: Iterable[str], patch: Patch
    ) -> AsyncIterator[Sequence[LetterRepair]]:
        """Yield the verdict on each letter, a step at a time."""
        for batch in batched(dict.fromkeys(ids), _STEP):
            there: set[str] = set()
            async for letters in whole_letters(self._store, batch):
                judged = await self._judge(letters, patch)
                there.update(letter.id for letter in letters)
                yield [LetterRepair(one.id, verdict) for one, verdict, _ in judged]
            if gone := [id_ for id_ in batch if id_ not in there]:
                yield [LetterRepair(id_, RepairVerdict.GONE) for id_ in gone]

    async def samples(self, ids: Sequence[str], patch: Patch) -> list[RepairSample]:
        """Return what would change in these letters now."""
        found: list[RepairSample] = []
        async for letters in whole_letters(self._store, ids):
            for letter, verdict, after in await self._judge(letters, patch):
                if verdict is RepairVerdict.CHANGE:
                    # A large body takes long to compare.
                    lines = await asyncio.to_thread(differences, letter.message, after)
                    found.append(RepairSample(letter.id, lines))
        return found

    async def apply(self, ids: Iterable[str], patch: Patch, by: By) -> Moved:
        """Change the letters that fit; return how many were left as they are, and why."""
        result = Moved()
        async for step in self.apply_in_steps(ids, patch, by):
            result = step.so_far
        return result

    async def apply_in_steps(
        self, ids: Iterable[str], patch: Patch, by: By
    ) -> AsyncIterator[RepairStep]:
        """
        Change the letters that fit, a step at a time.

        Each letter is a transaction of its own: what a step reports is done for good.
        """
        check_reason(by, "a repair")
        result = Moved()
        for batch in batched(dict.fromkeys(ids), _STEP):
            skipped: Counter[str] = Counter()
            done: list[str] = []
            revisions: dict[str, int] = {}
            seen = 0
            async for letters in whole_letters(self._store, batch):
                seen += len(letters)
                for letter, verdict, after in await self._judge(letters, patch):
                    if verdict is not RepairVerdict.CHANGE:
                        skipped[WHY_NOT[verdict]] += 1
                    elif (revision := await self._edit(letter, after, by)) is None:
                        skipped[_MEANWHILE] += 1
                    else:
                        done.append(letter.id)
                        if letter.as_it_died == letter.message:
                            revisions[letter.id] = revision
            skipped[_GONE] += len(batch) - seen
            result = _and(result, len(batch), len(done), skipped)
            yield RepairStep(tuple(done), result, revisions)

    async def undo(self, ids: Iterable[str], by: By) -> Moved:
        """Give edited letters their original messages back."""
        result = Moved()
        async for step in self.undo_in_steps(ids, by):
            result = step.so_far
        return result

    async def undo_in_steps(
        self, ids: Iterable[str], by: By, *, revisions: Mapping[str, int] | None = None
    ) -> AsyncIterator[RepairStep]:
        """
        Give edited letters their original messages back, a step at a time.

        With `revisions`, only letters that are still at these.
        """
        check_reason(by, "an undo")
        result = Moved()
        for batch in batched(dict.fromkeys(ids), _STEP):
            skipped: Counter[str] = Counter()
            done: list[str] = []
            seen = 0
            async for letters in whole_letters(self._store, batch):
                seen += len(letters)
                for letter in letters:
                    if why := _why_not_undone(letter, revisions):
                        skipped[why] += 1
                    elif await self._edit(letter, letter.as_it_died, by) is None:
                        skipped[_MEANWHILE] += 1
                    else:
                        done.append(letter.id)
            skipped[_GONE] += len(batch) - seen
            result = _and(result, len(batch), len(done), skipped)
            yield RepairStep(tuple(done), result)

    async def _judge(
        self, letters: Sequence[DeadLetter], patch: Patch
    ) -> list[tuple[DeadLetter, RepairVerdict, Message]]:
        """Return the verdict on each letter, and its message after the repair."""
        # Bodies can be large: other requests take turns with reading them.
        found = await asyncio.to_thread(lambda: [_judged(letter, patch) for letter in letters])
        return [
            (letter, self._checked(letter, verdict, after), after)
            for letter, (verdict, after) in zip(letters, found, strict=True)
        ]

    def _checked(self, letter: DeadLetter, verdict: RepairVerdict, after: Message) -> RepairVerdict:
        if verdict is not RepairVerdict.CHANGE or self._fits is None:
            return verdict
        return verdict if self._fits(letter.head.source, after) else RepairVerdict.UNREADABLE

    async def _edit(self, letter: DeadLetter, after: Message, by: By) -> int | None:
        """Return the new revision of a letter; None if somebody else was faster."""
        try:
            return await self._store.edit(letter.id, after, revision=letter.head.revision, by=by)
        except (Conflict, NotFound):
            return None


def check_reason(by: By, what: str) -> None:
    """Raise ConfigError if the reason is missing."""
    if not by.reason.strip():
        raise ConfigError(f"{what} needs a reason: it stands in the audit of each letter")


def _judged(letter: DeadLetter, patch: Patch) -> tuple[RepairVerdict, Message]:
    message = letter.message
    if letter.head.state not in OPEN:
        return RepairVerdict.WRONG_STATE, message
    try:
        body = patch.applied_to(message.body)
        if body == message.body:
            return RepairVerdict.UNCHANGED, message
        if not patch.is_for(message.body):
            return RepairVerdict.OTHER_VALUE, message
    except NotJson:
        return RepairVerdict.NOT_JSON, message
    except OtherShape:
        return RepairVerdict.OTHER_SHAPE, message
    return RepairVerdict.CHANGE, Changes(body=body).made_to(message)


def _why_not_undone(letter: DeadLetter, revisions: Mapping[str, int] | None) -> str:
    if letter.head.state not in OPEN:
        return WHY_NOT[RepairVerdict.WRONG_STATE]
    if letter.original is None or letter.message == letter.original:
        return "have their original already"
    if revisions is not None and revisions.get(letter.id) != letter.head.revision:
        return _MEANWHILE
    return ""


def _and(so_far: Moved, asked: int, done: int, skipped: Counter[str]) -> Moved:
    return structs.replace(
        so_far,
        asked=so_far.asked + asked,
        moved=so_far.moved + done,
        skipped=dict(Counter(so_far.skipped) + skipped),
    )
