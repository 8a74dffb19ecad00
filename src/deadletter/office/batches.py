"""Batches: bounded numbers of letters and searches."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from deadletter.core.letter import DeadLetter
from deadletter.ports import LetterStore

T = TypeVar("T")

# One transaction's worth: large enough to be fast, small enough that nobody else
# waits long for a turn to write.
BATCH: Final = 500
_FIRST: Final = 50
_MOST: Final = 1000
_BYTES: Final = 16 * 1024 * 1024  # of message bodies held at once


def batched(things: Iterable[T], size: int = BATCH) -> Iterator[tuple[T, ...]]:
    """Yield the same things in tuples of up to `size`."""
    rest = iter(things)
    while batch := tuple(islice(rest, size)):
        yield batch


class Portion:
    """The number of whole letters to hold at once: few large ones, many small ones."""

    def __init__(self, most: int = _MOST) -> None:
        self.size = _FIRST  # until we know how large they are
        self._most = most

    def learn(self, count: int, size: int) -> None:
        """Choose the next size by the number and bytes of the last letters."""
        if not count:
            return
        average = size / count
        self.size = int(max(1, min(self._most, _BYTES / max(1.0, average))))


async def whole_letters(
    store: LetterStore, ids: Sequence[str]
) -> AsyncIterator[Sequence[DeadLetter]]:
    """Yield whole letters, in portions that fit into memory."""
    portion = Portion()
    at = 0
    while at < len(ids):
        size = portion.size
        letters = await store.get(ids[at : at + size])
        size_of_all = sum(letter.head.size for letter in letters)
        portion.learn(len(letters), size_of_all)
        at += size
        yield letters


Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""A context entered for every step of a search, so that searches take turns."""


class Patience(Struct, frozen=True, kw_only=True):
    """The resources of one search before it returns what it has found so far."""

    letters: int = 200_000  # looked at
    seconds: float = 10.0  # of searching; waiting for a turn is not counted


PATIENCE: Final = Patience()
AT_ONCE: Final[Turn] = nullcontext
"""Patience of searches that nobody else waits for."""
