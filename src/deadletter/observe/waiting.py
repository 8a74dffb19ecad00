"""Waiting times of letters: for a review, or for the outcome of a replay."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from deadletter.core.campaign import Unsettled, is_any_unsettled, unsettled_letters
from deadletter.core.letter import LetterHead, State
from deadletter.core.query import All, Node, Op, Term, instant, literal, parse
from deadletter.ports import LetterStore

_PAGE: Final = 100
_LOOKS: Final = 24  # searches of one source at most
_CLOSE: Final = 1.05  # factor within which an age must be, if it cannot be exact
_PENDING: Final = parse(f"is:{State.PENDING}")


async def oldest_pending(store: LetterStore, source: str, now: datetime) -> datetime | None:
    """
    Return when the oldest pending letter of a source died.

    Lists are newest first, so it searches further and further back until it finds the end. The
    result is exact if few letters wait that long, else within a twentieth of the age.
    """
    mine = All((_PENDING, Term("source", Op.IS, (literal(source),))))
    page, is_all = await _some(store, mine)
    if not page:
        return None
    known, far = page[-1].dead_at, None
    for _ in range(_LOOKS):
        if is_all:
            break
        age = max(1.0, (now - known).total_seconds())
        if far is not None and far <= age * _CLOSE:
            break
        ago = age * 2 if far is None else (age + far) / 2
        page, is_all = await _some(store, _before(mine, now - timedelta(seconds=ago)))
        if page:
            known = page[-1].dead_at
        else:
            far, is_all = ago, False
    return known


async def unsettled(store: LetterStore) -> tuple[Unsettled, ...]:
    """Return the letters that wait for the outcome of a replay, longest wait first."""
    counts = await store.counts()
    since = await store.waiting_since() if is_any_unsettled(counts) else {}
    return unsettled_letters(counts, since)


async def _some(store: LetterStore, query: Node) -> tuple[Sequence[LetterHead], bool]:
    page = await store.find(query, limit=_PAGE)
    return page.heads, page.after is None


def _before(query: Node, when: datetime) -> Node:
    return All((query, Term("until", Op.IS, (instant(when),))))
