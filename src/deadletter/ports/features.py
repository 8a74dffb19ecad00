"""The promises of an engine, as data for tests and documentation."""

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Durability(StrEnum):
    """The durability classes of an acknowledged write."""

    NONE = "none"  # the end of the process loses it
    KILL_SAFE = "kill-safe"  # survives kill -9, not a power cut
    POWER_SAFE = "power-safe"
    REPLICATED = "replicated"


class Features(Struct, frozen=True, kw_only=True):
    """The promises of an engine; contract tests check each of them."""

    engine: str
    durability: Durability
    shared: bool = True  # several processes may use it at once
    ordered: bool = True  # one consumer sees send order
    exact_delay: bool = True  # a release's delay is honoured, not rounded up
    counts_attempts: bool = True  # Delivery.attempt grows durably, by itself
    keeps_history: bool = True  # a release's history comes back with the delivery
    fences: bool = True  # a settle after the lease is gone changes nothing
    finds_suspects: bool = True  # deliveries of lost workers are handed out alone
    sees_lost: bool = True  # a sweep sees what lost workers held, not only receiving
    sees_delayed: bool = True  # queues() tells what is delayed from what is claimed
    dedupes: bool = False  # the same message, sent again soon, arrives once
    due_order: bool = True  # what is due first comes first, whenever it was sent
    dooms: bool = True  # the sweep claims what has expired or used up its attempts
    tallies: bool = True  # mailboxes count what was sent to them and how it left
    keeps_options: bool = True  # all mailboxes are known, with their options
    keeps_locks: bool = True  # no close() elsewhere in the process drops its locks
    owns_fields: bool = False  # only we can write what stands beside a message
    keeps_results: bool = False  # what a handler returned, and its notes, can be seen
    keeps_letters: bool = True
    keeps_ledger: bool = True


class Clock(Protocol):
    """The current time, as a date and as a monotonic counter."""

    def now(self) -> datetime:
        """Wall-clock time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only ever grow, for durations."""


class Dice(Protocol):
    """Chance, and ids made of it."""

    def draw(self) -> float:
        """Uniform in [0, 1)."""

    def new_id(self) -> str:
        """A unique id that sorts by the time of its making (UUID version 7)."""

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids, as `new_id` makes them, in their order."""
