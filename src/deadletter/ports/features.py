"""The promises of an engine, and the clock and dice that it is given."""

from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Durability(StrEnum):
    """The durability classes of an acknowledged write."""

    NONE = "none"  # lost when the process ends
    KILL_SAFE = "kill-safe"  # survives kill -9, not a power cut
    POWER_SAFE = "power-safe"
    REPLICATED = "replicated"


class Features(Struct, frozen=True, kw_only=True):
    """The promises of an engine; contract tests check each of them."""

    engine: str
    durability: Durability
    shared: bool = True  # several processes may use it at once
    ordered: bool = True  # one consumer sees send order
    exact_delay: bool = True  # the delay of a release is exact, not rounded up
    counts_attempts: bool = True  # Delivery.attempt grows durably, by itself
    keeps_history: bool = True  # a release's history comes back with the delivery
    fences: bool = True  # settling after the lease is lost changes nothing
    finds_suspects: bool = True  # deliveries of lost workers are received alone
    sees_lost: bool = True  # a sweep finds what lost workers held, not only `receive`
    sees_delayed: bool = True  # queues() counts delayed and claimed messages separately
    dedupes: bool = False  # a message sent twice within a short time arrives once
    due_order: bool = True  # messages come in the order in which they are due
    dooms: bool = True  # the sweep claims expired and exhausted messages
    tallies: bool = True  # mailboxes count messages sent, and how they left
    keeps_options: bool = True  # all mailboxes are known, with their options
    keeps_locks: bool = True  # a close() elsewhere in the process does not drop its locks
    owns_fields: bool = False  # only we can write fields beside a message
    keeps_results: bool = False  # results and notes of handlers can be seen
    keeps_letters: bool = True
    counts_deaths: bool = True  # its office counts deaths over time
    keeps_presence: bool = True  # its office knows which workers run
    keeps_ledger: bool = True


class Clock(Protocol):
    """The current time, as a date and as a monotonic counter."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations."""


class Dice(Protocol):
    """Chance, and ids."""

    def draw(self) -> float:
        """Return a number, uniform in [0, 1)."""

    def new_id(self) -> str:
        """Return a unique id that sorts by its time (UUID version 7)."""

    def new_ids(self, count: int) -> list[str]:
        """Return `count` ids of `new_id`, in order."""
