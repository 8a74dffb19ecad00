"""Retention: audited deletion in small slices; the unreviewed expire only if told so."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from deadletter.core.errors import Conflict
from deadletter.core.letter import OPEN, By, State
from deadletter.core.letter_filing import check_expiry
from deadletter.core.query.ast import All, Node, Op, Term
from deadletter.ports import Clock, Ledger, LetterStore

from .letters import Letters

KEEP: Final[Mapping[State, timedelta]] = MappingProxyType(
    dict.fromkeys((State.CLOSED, State.REPLAYED, State.DISCARDED), timedelta(days=90))
)
"""Time from death to deletion, by finished state."""

ABANDONED: Final = timedelta(days=30)
"""How long ago the lease of an unfinished ledger key must have ended."""

SLICE: Final = 1_000
_FEW: Final = 10  # of so few letters, half is no flood


class Swept(Struct, frozen=True, kw_only=True):
    """The result of one run."""

    letters: int = 0
    ledger: int = 0


class Retention:
    """
    Deletes finished letters and ledger keys after their time.

    Pending, reviewed and quarantined letters are deleted only with `unreviewed`, letters that
    wait for the outcome of a replay never. Finished ledger keys have their own time to live.
    Unfinished ones are deleted when nobody has held them for `abandoned`: their message is gone.
    """

    def __init__(
        self,
        store: LetterStore,
        clock: Clock,
        *,
        keep: Mapping[State, timedelta] = KEEP,
        unreviewed: timedelta | None = None,
        ledger: Ledger | None = None,
        abandoned: timedelta = ABANDONED,
    ) -> None:
        check_expiry(keep)
        self._store = store
        self._clock = clock
        self._keep = dict(keep)
        if unreviewed is not None:
            self._keep |= dict.fromkeys(sorted(OPEN), unreviewed)
        self._with_unreviewed = unreviewed is not None
        self._ledger = ledger
        self._abandoned = abandoned

    async def due(self, *, most: int | None = None) -> int:
        """Return how many letters are past their time, counted up to `most`."""
        letters = Letters(self._store, self._clock)
        found = 0
        for state, before in self._before().items():  # each a range of an index
            left = None if most is None else most - found
            async for ids in letters.select_ids(_past(state, before), limit=left):
                found += len(ids)
        return found

    async def run(
        self, by: By, *, force: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> Swept:
        """
        Delete everything past its time; `on_progress` gets the number of deleted letters.

        A run that would delete more than half of all letters may come from a wrong clock: it
        raises Conflict and deletes nothing, unless forced.
        """
        if not force:
            await self._guard()
        before = self._before()
        letters = 0
        with_open = self._with_unreviewed
        while gone := await self._store.expire(
            before=before, by=by, limit=SLICE, unreviewed=with_open
        ):
            letters += gone
            if on_progress is not None:
                on_progress(gone)
        return Swept(letters=letters, ledger=await self._forget())

    async def _guard(self) -> None:
        counts = await self._store.counts()
        everything = sum(sum(states.values()) for states in counts.values())
        finished = sum(states.get(state, 0) for states in counts.values() for state in self._keep)
        if everything <= _FEW or finished * 2 <= everything:
            return
        due = await self.due()
        if due * 2 > everything:
            raise Conflict(
                f"{due:,} of {everything:,} letters are past their time, more than "
                "half. If the clock is right, run it again with --force"
            )

    async def _forget(self) -> int:
        if self._ledger is None:
            return 0
        forgotten = 0
        abandoned = self._abandoned.total_seconds()
        while gone := await self._ledger.forget(limit=SLICE, abandoned=abandoned):
            forgotten += gone
        return forgotten

    def _before(self) -> dict[State, datetime]:
        now = self._clock.now()
        return {state: now - age for state, age in self._keep.items()}


def _past(state: State, before: datetime) -> Node:
    return All((Term("is", Op.IS, (state,)), Term("dead", Op.LT, (_written(before),))))


def _written(when: datetime) -> str:
    return when.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
