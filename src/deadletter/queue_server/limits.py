"""Checks of the fields of requests; each returns the valid value or raises ConfigError."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from msgspec import UNSET, UnsetType

from deadletter.core.errors import ConfigError
from deadletter.core.policy import LimitMode
from deadletter.core.text import parse_duration

from .model import item_number

KILO: Final = 1024
MEGA: Final = 1024 * KILO

NAME: Final = 512
REFERENCE: Final = 2_000
NAMESPACE: Final = 256
ATTEMPTS: Final = 65_536
BATCH: Final = 1_000
LISTED: Final = 65_536
LISTED_BY_DEFAULT: Final = 1_000
PARTITIONS: Final = 1_000  # more than a store should look through for each request
LATEST: Final = 9000  # the last year: timeouts can be added to it
SHORTEST: Final = 0.01  # seconds; a request has to wait longer
LONGEST: Final = 15 * 60.0


def queue_name(name: str, what: str = "queue_name") -> str:
    """Return the name of a queue; `what` is the field that has it."""
    if not name:
        raise ConfigError(f"invalid {what}; it must have 1 to {NAME} characters, got none")
    if len(name) > NAME:
        raise ConfigError(
            f"invalid {what}; it must have at most {NAME} characters, got {len(name):,}"
        )
    if "~" in name or any(letter.isspace() for letter in name):
        raise ConfigError(f"invalid {what}; it must contain neither white space nor '~'")
    return text(what, name)


def namespace(name: str) -> str:
    """Return the name of a namespace; it may be empty."""
    if len(name) > NAMESPACE or "~" in name or ":" in name:
        raise ConfigError(f"invalid namespace; at most {NAMESPACE} characters, without '~' and ':'")
    return text("namespace", name)


def reference(given: str) -> str:
    """Return a note for people."""
    if len(given) > REFERENCE:
        raise ConfigError(f"invalid reference; it is longer than {REFERENCE:,} characters")
    return text("reference", given)


def text(what: str, given: str) -> str:
    """Return a text that databases can store."""
    if "\0" in given:
        raise ConfigError(f"invalid {what}; it must not contain NUL")
    return given


def item_id(given: str) -> str:
    """Return the id of an item, which may no longer exist."""
    if item_number(given) is None:
        raise ConfigError(f"invalid id {given!a}; expected the id of an item, as lists show it")
    return given


def max_attempts(given: int) -> int:
    """Return how often an item may be leased; 0 means unlimited."""
    if not 0 <= given <= ATTEMPTS:
        raise ConfigError(f"invalid max_attempts; it must be 0 to {ATTEMPTS:,}")
    return given


def limit_mode(given: str) -> LimitMode:
    """Return which attempt is the last one."""
    if given not in tuple(LimitMode):
        raise ConfigError(f"invalid limit_mode; it must be {' or '.join(LimitMode)}, got {given!a}")
    return LimitMode(given)


def partitions(given: int) -> int:
    """Return the number of partitions of a queue."""
    if not 1 <= given <= PARTITIONS:
        raise ConfigError(f"invalid requested_partitions; it must be 1 to {PARTITIONS:,}")
    return given


def partition(given: int) -> int:
    """Return the number of a partition, counted from 0."""
    if given < 0:
        raise ConfigError("invalid partition; it must be 0 or more")
    return given


def timeout(what: str, given: str) -> float:
    """Return a required duration in seconds."""
    if not given:
        raise ConfigError(f"invalid {what}; it is required, such as 30s or 1h30m")
    try:
        seconds = parse_duration(given)
    except ValueError as error:
        raise ConfigError(f"invalid {what}; {error}") from None
    if seconds <= 0:
        raise ConfigError(f"invalid {what}; it must be longer than 0")
    return seconds


@lru_cache(256)  # clients mostly send the same
def request_timeout(given: str) -> float:
    """Return how long a request may wait, in seconds."""
    seconds = timeout("request_timeout", given)
    if not SHORTEST < seconds <= LONGEST:
        raise ConfigError("invalid request_timeout; it must be more than 10ms and at most 15m")
    return seconds


def lease_within_expiry(lease: float, expire: float) -> None:
    """Check that an item cannot expire during its first lease."""
    if lease > expire:
        raise ConfigError("invalid lease_timeout; it must be at most expire_timeout")


def not_empty(what: str, given: Sequence[object]) -> None:
    """Check that a list has an element."""
    if not given:
        raise ConfigError(f"invalid {what}; it must have at least 1 element, got none")


def batch(what: str, given: Sequence[object]) -> None:
    """Check the number of elements in a request."""
    batch_size(what, len(given))


def batch_size(what: str, count: int) -> int:
    """Return the number of items that a request asks for."""
    if not 1 <= count <= BATCH:
        raise ConfigError(f"invalid {what}; it must be 1 to {BATCH:,}, got {count:,}")
    return count


def listed(limit: int) -> int:
    """Return how many elements to list; 0 means the default."""
    if not 0 <= limit <= LISTED:
        raise ConfigError(f"invalid limit; it must be 0 to {LISTED:,}")
    return limit or LISTED_BY_DEFAULT


def moment(given: datetime | UnsetType | None) -> datetime | None:
    """Return a time, or None; Go sends the year 1 for a missing time."""
    if given is UNSET or given is None or given.year == 1:
        return None
    if given.year > LATEST:
        raise ConfigError(f"invalid time; it is after the year {LATEST}")
    return given.astimezone(UTC)
