"""What is in a partition, made of sums."""

from collections.abc import Mapping
from typing import TypeAlias

from .item_plans import ItemState
from .items import PartitionStats

Sums: TypeAlias = tuple[int, float, float]
"""How many, and the seconds since they were made and since they were changed."""


def partition_stats(
    partition: int, sums: Mapping[tuple[int, int], Sums]
) -> PartitionStats:
    """What is in one partition, of sums by partition and state."""
    nothing: Sums = (0, 0.0, 0.0)
    waiting, age, _ = sums.get((partition, ItemState.WAITING), nothing)
    leased, leased_age, held = sums.get((partition, ItemState.LEASED), nothing)
    scheduled, _, _ = sums.get((partition, ItemState.SCHEDULED), nothing)
    total = waiting + leased
    return PartitionStats(
        partition=partition,
        total=total,
        leased=leased,
        scheduled=scheduled,
        average_age=(age + leased_age) / max(1, total),
        average_leased_age=held / max(1, leased),
    )
