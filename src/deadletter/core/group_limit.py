"""
A limit on new groups, so that a flood of different error texts stays one problem.

A source, error type and frame may have a number of new groups in a day. Letters whose
texts would make more go into one overflow group of theirs. All stores follow these
rules, in the transaction that keeps the letters.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from typing import Final

from msgspec.structs import replace

from .letter import DeadLetter

GROUPS_PER_DAY: Final = 200
OVERFLOW: Final = "overflow-"
"""The fingerprints of overflow groups begin with this."""

_REMEMBERED: Final = 20_000  # fingerprints of groups that are known to be there


class GroupLimit:
    """
    How many new groups a source, error type and frame may have in a day.

    It remembers groups that are there, so that a store is asked about others only.
    """

    def __init__(self, per_day: int = GROUPS_PER_DAY) -> None:
        self.per_day = per_day
        self._there: dict[str, None] = {}

    def candidates(
        self, letters: Iterable[DeadLetter], named: Container[str] = ()
    ) -> dict[str, str]:
        """
        Return fingerprints that may be new, each with its overflow group.

        Groups that people `named` for some of the letters are not limited.
        """
        return {
            name: overflow_of(letter)
            for letter in letters
            if (name := letter.head.fingerprint) not in self._there
            and not is_overflow(name)
            and name not in named
        }

    def remember(self, names: Iterable[str]) -> None:
        """Remember groups that are there."""
        self._there.update(dict.fromkeys(names))
        if (surplus := len(self._there) - _REMEMBERED) > 0:
            for name in list(islice(self._there, surplus)):
                del self._there[name]

    def divert(
        self,
        letters: Sequence[DeadLetter],
        new: Mapping[str, str],
        made: Mapping[str, int],
    ) -> tuple[list[DeadLetter], Counter[str]]:
        """
        Return the letters as they are to be kept, and how many groups they make.

        `new` are the fingerprints without a group, each with its overflow group;
        `made` are the groups made today, by the overflow group, as is the answer.
        """
        more: Counter[str] = Counter()
        stays: dict[str, bool] = {}
        kept: list[DeadLetter] = []
        for letter in letters:
            name = letter.head.fingerprint
            overflow = new.get(name)
            if overflow is None:
                kept.append(letter)
                continue
            if name not in stays:
                there = made.get(overflow, 0) + more[overflow]
                stays[name] = there < self.per_day
                more[overflow] += stays[name]
            if stays[name]:
                kept.append(letter)
            else:
                head = replace(letter.head, fingerprint=overflow)
                kept.append(replace(letter, head=head))
        return kept, +more


def overflow_of(letter: DeadLetter) -> str:
    """Return the fingerprint of the overflow group that a letter belongs to."""
    parts = (letter.head.source, letter.head.error_type, letter.frame)
    told = "".join([f"{len(part)}:{part}" for part in parts])
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{OVERFLOW}{digest.hexdigest()}"


def is_overflow(fingerprint: str) -> bool:
    """Return whether a group is one for letters that there were too many groups for."""
    return fingerprint.startswith(OVERFLOW)


def day_of(now: datetime) -> int:
    """Return the number of the day, in UTC, that groups made now are counted for."""
    return now.astimezone(UTC).toordinal()
