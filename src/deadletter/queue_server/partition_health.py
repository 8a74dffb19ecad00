"""Failures of writes to partitions, so that the next writes go to healthy ones."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from deadletter.core.errors import BackendError

from .plans import choose_partition

REMEMBERED: Final = 30.0  # seconds without a failure until a partition counts as healthy again


class WriteAttempt:
    """One attempt to write: the partitions that it chooses, and where it moves dead items."""

    def __init__(self, failures: Mapping[tuple[str, int], int]) -> None:
        self.chosen: set[tuple[str, int]] = set()  # queue and partition
        self.dead_queues: set[str] = set()
        self._failures = failures

    def choose(self, queue: str, loads: Sequence[int]) -> int:
        """Choose a partition of a queue: healthy ones first, then the least loaded."""
        failures = {number: count for (name, number), count in self._failures.items()
                    if name == queue}  # fmt: skip
        partition = choose_partition(loads, failures)
        self.chosen.add((queue, partition))
        return partition


class PartitionHealth:
    """
    Numbers of failed writes by queue and partition, as this process has seen them.

    A success makes a partition healthy. So does time: it may have recovered, and only
    another attempt can show that.
    """

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int], int] = {}
        self._healthy_at: dict[tuple[str, int], float] = {}

    def failures(self, queue: str) -> dict[int, int]:
        """Return the failures of a queue by partition, without those that have none."""
        self._drop_old()
        return {number: count for (name, number), count in self._failures.items() if name == queue}

    @contextmanager
    def attempt(self) -> Iterator[WriteAttempt]:
        """
        Watch one write, and count its outcome for the partitions it chose.

        An error in moving dead items names their dead queues.
        """
        self._drop_old()
        attempt = WriteAttempt(self._failures)
        try:
            yield attempt
        except BackendError as error:
            for place in attempt.chosen:
                self._failures[place] = self._failures.get(place, 0) + 1
                self._healthy_at[place] = asyncio.get_running_loop().time() + REMEMBERED
            if attempt.dead_queues:
                raise _failed_move(error, attempt.dead_queues) from error
            raise
        for place in attempt.chosen.intersection(self._failures):
            self._drop(place)

    def _drop_old(self) -> None:
        if self._healthy_at:
            now = asyncio.get_running_loop().time()
            for place in [place for place, at in self._healthy_at.items() if at <= now]:
                self._drop(place)

    def _drop(self, place: tuple[str, int]) -> None:
        del self._failures[place], self._healthy_at[place]


def _failed_move(error: BackendError, dead_queues: set[str]) -> BackendError:
    names = ", ".join(sorted(dead_queues))
    return type(error)(
        f"could not move items to dead queue {names}: {error}; they stay where they are"
        " until the move is tried again"
    )
