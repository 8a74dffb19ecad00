"""Checks of the fields of requests; each returns the valid value or raises ConfigError."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from msgspec import UNSET, UnsetType

from deadletter.core.errors import ConfigError
from deadletter.core.policy import LimitMode
from deadletter.core.text import format_duration, parse_duration
from deadletter.core.topology import MAX_ATTEMPTS, MAX_NAME, MAX_REFERENCE

from .model import MAX_NAMESPACE, MAX_PARTITIONS, item_number

KILO: Final = 1024
MEGA: Final = 1024 * KILO

BATCH: Final = 1_000
LISTED: Final = 65_536
LISTED_BY_DEFAULT: Final = 1_000
LATEST: Final = 9000  # the last year: timeouts can be added to it
SHORTEST: Final = 0.01  # seconds; a request has to wait longer
LONGEST: Final = 15 * 60.0


@lru_cache(256)  # clients mostly send the same
def queue_name(name: str, what: str = "queue_name") -> str:
    """Return the name of a queue; `what` is the field that has it."""
    if not 1 <= len(name) <= MAX_NAME:
        raise ConfigError(
            f"invalid {what}; it must have 1 to {MAX_NAME} characters, got {len(name):,}"
        )
    if "~" in name or any(letter.isspace() for letter in name):
        raise ConfigError(
            f"invalid {what}; it must contain neither white space nor '~', got {name!a}"
        )
    return text(what, name)


def namespace(name: str) -> str:
    """Return the name of a namespace; it may be empty."""
    if len(name) > MAX_NAMESPACE:
        raise ConfigError(
            f"invalid namespace; it must have at most {MAX_NAMESPACE} characters, got {len(name):,}"
        )
    if "~" in name or ":" in name:
        raise ConfigError(f"invalid namespace; it must contain neither '~' nor ':', got {name!a}")
    return text("namespace", name)


def reference(given: str) -> str:
    """Return a note for people."""
    if len(given) > MAX_REFERENCE:
        raise ConfigError(
            f"invalid reference; it must have at most {MAX_REFERENCE:,} characters,"
            f" got {len(given):,}"
        )
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


def attempts(what: str, given: int) -> int:
    """Return a number of attempts; as a limit, 0 means unlimited."""
    return _within(what, given, 0, MAX_ATTEMPTS)


def limit_mode(given: str) -> LimitMode:
    """Return which attempt is the last one."""
    if given not in tuple(LimitMode):
        raise ConfigError(f"invalid limit_mode; it must be {' or '.join(LimitMode)}, got {given!a}")
    return LimitMode(given)


def partitions(given: int) -> int:
    """Return the number of partitions of a queue."""
    return _within("requested_partitions", given, 1, MAX_PARTITIONS)


def partition(given: int) -> int:
    """Return the number of a partition, counted from 0."""
    if given < 0:
        raise ConfigError(f"invalid partition; it must be 0 or more, got {given}")
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
        raise ConfigError(f"invalid {what}; it must be longer than 0, got {given!a}")
    return seconds


@lru_cache(256)  # clients mostly send the same
def request_timeout(given: str) -> float:
    """Return how long a request may wait, in seconds."""
    seconds = timeout("request_timeout", given)
    if not SHORTEST < seconds <= LONGEST:
        raise ConfigError(
            f"invalid request_timeout; it must be more than 10ms and at most 15m, got {given!a}"
        )
    return seconds


def lease_within_expiry(lease: float, expire: float) -> None:
    """Check that an item cannot expire during its first lease."""
    if lease > expire:
        raise ConfigError(
            "invalid lease_timeout; it must be at most expire_timeout, got"
            f" {format_duration(lease)} and {format_duration(expire)}"
        )


def not_empty(what: str, given: Sequence[object]) -> None:
    """Check that a list has an element."""
    if not given:
        raise ConfigError(f"invalid {what}; it must have at least 1 element, got none")


def batch(what: str, given: Sequence[object]) -> None:
    """Check the number of elements in a request."""
    if not 1 <= len(given) <= BATCH:
        raise ConfigError(
            f"invalid {what}; it must have 1 to {BATCH:,} elements, got {len(given):,}"
        )


def batch_size(given: int) -> int:
    """Return the number of items that a request asks for."""
    return _within("batch_size", given, 1, BATCH)


def listed(limit: int) -> int:
    """Return how many elements to list; 0 means the default."""
    return _within("limit", limit, 0, LISTED) or LISTED_BY_DEFAULT


def moment(what: str, given: datetime | UnsetType | None) -> datetime | None:
    """Return a time, or None; Go sends the year 1 for a missing time."""
    if given is UNSET or given is None or given.year == 1:
        return None
    if given.year > LATEST:
        raise ConfigError(
            f"invalid {what}; its year must be at most {LATEST}, got {given.isoformat()}"
        )
    return given.astimezone(UTC)


def _within(what: str, given: int, least: int, most: int) -> int:
    if not least <= given <= most:
        raise ConfigError(f"invalid {what}; it must be {least:,} to {most:,}, got {given:,}")
    return given
