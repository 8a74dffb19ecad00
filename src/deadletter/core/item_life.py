"""
What becomes of an item: when it is dead, and who of many gets which.

Pure rules, the same for every store.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from .errors import ConfigError
from .items import SOON, Death

Thing = TypeVar("Thing")

CLOCK_SLACK: Final = timedelta(seconds=1)
"""Clocks that agree differ by less."""

_DIGITS: Final = 16
_LARGEST: Final = (1 << 63) - 1
_HEX: Final = "0123456789abcdef"


def item_id(number: int) -> str:
    """The id of the item with that number; both sort alike."""
    return f"{number:016x}"


def item_number(id: str) -> int | None:
    """The number of an item; None for what cannot be an id of ours."""
    if len(id) != _DIGITS or id.strip(_HEX):
        return None
    number = int(id, 16)
    return number if number <= _LARGEST else None


def first_number(pivot: str) -> int:
    """The number to list items from, itself included; 0 for all."""
    number = item_number(pivot) if pivot else 0
    if number is None:
        raise ConfigError(f"pivot {pivot!a} is no id of an item: take one of a list")
    return number


def scheduled_for(wish: datetime | None, now: datetime) -> datetime | None:
    """When it is to be put into the queue; None for now."""
    if wish is None or wish - now < timedelta(seconds=SOON):
        return None
    return wish


def death_of(
    attempts: int,
    max_attempts: int,
    expires: datetime | None,
    now: datetime,
    *,
    mortal: bool,
    asked: bool = False,
) -> Death | None:
    """
    Why an item that nobody holds any more is dead; None if it is not.

    Those in dead queues are not mortal: they are never dead again, and wait for
    people however long it takes.
    """
    if not mortal:
        return None
    if asked:
        return Death.ASKED
    if 0 < max_attempts <= attempts:
        return Death.ATTEMPTS
    if expires is not None and expires <= now:
        return Death.EXPIRED
    return None


def dies_at(
    attempts: int,
    max_attempts: int,
    expires: datetime | None,
    now: datetime,
    *,
    mortal: bool,
) -> datetime | None:
    """When an item will be dead if nobody leases it; None for never."""
    if not mortal:
        return None
    return now if 0 < max_attempts <= attempts else expires


def shortened_lease(
    leased_at: datetime, until: datetime, now: datetime
) -> datetime | None:
    """
    When a lease ends that a clock wrote which was ahead; None for any other.

    It lasts as long as it was to last, from now on.
    """
    if leased_at - now <= CLOCK_SLACK:
        return None
    return now + max(until - leased_at, timedelta())


def least_loaded(loads: Sequence[int]) -> int:
    """The partition with the least in it, the first of several."""
    return min(range(len(loads)), key=loads.__getitem__)


class Round(Generic[Thing]):
    """
    Hands items out to several clients, each of one partition.

    `ask` says how many to take of which partition, `give` takes what was there.
    Until `ask` says nothing: a client whose partition had run dry is sent to
    another one.
    """

    def __init__(self, wants: Sequence[int], partitions: Collection[int]) -> None:
        self._wants = wants
        self._wet = list(partitions)  # in the order to be emptied
        self._turns: dict[int, list[int]] = {}  # of clients, by partition
        self._got: dict[int, tuple[int, Sequence[Thing]]] = {}

    def ask(self) -> dict[int, int]:
        """How many to take of which partition."""
        self._turns = {}
        if not self._wet:
            return {}
        left = [i for i, want in enumerate(self._wants) if want and i not in self._got]
        for place, client in enumerate(left):
            partition = self._wet[place % len(self._wet)]
            self._turns.setdefault(partition, []).append(client)
        return {
            partition: sum(self._wants[client] for client in clients)
            for partition, clients in self._turns.items()
        }

    def look_into(self, partitions: Collection[int]) -> None:
        """Take these partitions instead, for those who have nothing yet."""
        self._wet = list(partitions)

    def give(self, partition: int, things: Sequence[Thing]) -> None:
        """What was taken of a partition, in order."""
        start = 0
        for client in self._turns[partition]:
            share = things[start : start + self._wants[client]]
            start += self._wants[client]
            if share:
                self._got[client] = partition, share
        if start > len(things):
            self._wet.remove(partition)

    def shares(self) -> list[tuple[int, Sequence[Thing]]]:
        """Partition and items, by client."""
        return [self._got.get(i, (0, ())) for i in range(len(self._wants))]
