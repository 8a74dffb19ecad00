"""Repairs behind a server: the same change to the bodies of many letters."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from deadletter.core.letter import By
from deadletter.core.patch import Patch
from deadletter.office.batches import batched
from deadletter.office.repair import SAMPLES, RepairPlan, RepairVerdict, check_reason
from deadletter.office.verbs import Moved

from .connection import API, Connection
from .letters import selected

_NAMED: Final = 1_000  # letters in one request; each is a transaction of its own


class Repairs:
    """The repairs of one office; letters are named by `ids` or a `query`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def plan(
        self,
        patch: Patch,
        ids: Iterable[str] | None = None,
        *,
        query: str | None = None,
        free_text: bool = False,
        samples: int = SAMPLES,
    ) -> RepairPlan:
        """Return what a repair would do; nothing is changed."""
        chosen = selected(ids, query, free_text, samples=samples) | _change(patch)
        return await self._connection.post(f"{API}/letters/repair/plan", chosen, RepairPlan)

    async def apply(
        self,
        patch: Patch,
        ids: Iterable[str] | None = None,
        *,
        reason: str,
        query: str | None = None,
        expect: int | None = None,
        free_text: bool = False,
    ) -> Moved:
        """Change the letters that fit; with a `query`, give `expect`, their number."""
        chosen = selected(ids, query, free_text, expect=expect, reason=reason) | _change(patch)
        return await self._connection.post(f"{API}/letters/repair", chosen, Moved)

    async def undo(
        self,
        ids: Iterable[str] | None = None,
        *,
        reason: str,
        query: str | None = None,
        expect: int | None = None,
        free_text: bool = False,
    ) -> Moved:
        """Give edited letters their original messages back."""
        chosen = selected(ids, query, free_text, expect=expect, reason=reason)
        return await self._connection.post(f"{API}/letters/repair/undo", chosen, Moved)


def _change(patch: Patch) -> dict[str, Any]:
    """Return the fields of a change, with numbers as they were written."""
    found = {"patch": patch.text}
    return found if patch.was is None else found | {"was": patch.was_text}


class RemoteRepairs:
    """The repairs of an office behind a server."""

    def __init__(self, repairs: Repairs) -> None:
        self._repairs = repairs

    async def plan(self, ids: Iterable[str], patch: Patch, *, samples: int = SAMPLES) -> RepairPlan:
        """Return what a repair would do; nothing is changed."""
        total = RepairPlan()
        for some in batched(dict.fromkeys(ids), _NAMED):
            part = await self._repairs.plan(patch, some, samples=samples)
            total = _and(total, part, samples, gone=len(some) - part.total)
        return total

    async def apply(self, ids: Iterable[str], patch: Patch, by: By) -> Moved:
        """Change the letters that fit; return how many were left as they are, and why."""
        check_reason(by, "a repair")
        result = Moved()
        for some in batched(dict.fromkeys(ids), _NAMED):
            result = _sum(result, await self._repairs.apply(patch, some, reason=by.reason))
        return result

    async def undo(self, ids: Iterable[str], by: By) -> Moved:
        """Give edited letters their original messages back."""
        check_reason(by, "an undo")
        result = Moved()
        for some in batched(dict.fromkeys(ids), _NAMED):
            result = _sum(result, await self._repairs.undo(some, reason=by.reason))
        return result


def _and(total: RepairPlan, part: RepairPlan, samples: int, *, gone: int) -> RepairPlan:
    verdicts = Counter(total.verdicts) + Counter(part.verdicts)
    if gone > 0:  # letters that the token does not see
        verdicts[RepairVerdict.GONE] += gone
    letters = {
        one: (*total.letters.get(one, ()), *part.letters.get(one, ()))[:samples]
        for one in RepairVerdict
        if one in total.letters or one in part.letters
    }
    return RepairPlan(
        total=verdicts.total(),
        verdicts={one: verdicts[one] for one in RepairVerdict if verdicts[one]},
        letters=letters,
        samples=(*total.samples, *part.samples)[:samples],
    )


def _sum(one: Moved, other: Moved) -> Moved:
    return Moved(
        asked=one.asked + other.asked,
        moved=one.moved + other.moved,
        skipped=dict(Counter(one.skipped) + Counter(other.skipped)),
    )
