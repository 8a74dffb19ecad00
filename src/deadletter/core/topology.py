"""
Checks of mailboxes and their dead queues (P7).

They are pure; every engine runs them in the transaction of the change itself.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from .errors import ConfigError, Conflict, NotFound
from .message import LONGEST

MAX_NAME: Final = 512
MAX_ATTEMPTS: Final = 65_536
MAX_REFERENCE: Final = 2_000


class Options(Protocol):
    """The options of a mailbox that the topology check reads."""

    @property
    def name(self) -> str: ...
    @property
    def dead_queue(self) -> str | None: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def expire_after(self) -> float | None: ...
    @property
    def reference(self) -> str: ...


def check_name(name: str) -> None:
    """Reject an invalid mailbox name."""
    if not 1 <= len(name) <= MAX_NAME:
        raise ConfigError(f"a queue name must have 1 to {MAX_NAME} characters, got {len(name)}")
    if "~" in name or not name.isprintable() or any(c.isspace() for c in name):
        raise ConfigError(
            f"the queue name {name!a} has white space, a control character or a ~ in"
            " it: leave those out"
        )


def validate(options: Options, existing: Mapping[str, Options]) -> None:
    """
    Reject invalid options, given the existing queues.

    The queue itself may be among `existing`: then its options change.
    """
    check_name(options.name)
    _check_numbers(options)
    users = users_of(options.name, existing)
    if users and options.expire_after is not None:
        raise ConfigError(
            f"{options.name} is the dead queue of {users[0]}, so its messages never"
            " expire: leave out expire_after"
        )
    if options.dead_queue is not None:
        _check_dead_queue(options.name, options.dead_queue, users, existing)


def check_creation(options: Options, existing: Mapping[str, Options]) -> None:
    """Reject invalid options, or a queue that exists with other options."""
    validate(options, existing)
    if existing.get(options.name, options) != options:
        raise Conflict(f"queue {options.name} exists with other options: update it instead")


def check_update(options: Options, existing: Mapping[str, Options]) -> None:
    """Reject a change of a missing queue, or invalid options."""
    if options.name not in existing:
        raise NotFound(f"there is no queue {options.name!a}: create it first")
    validate(options, existing)


def check_deletion(name: str, existing: Mapping[str, Options], *, force: bool = False) -> list[str]:
    """Reject the deletion of a dead queue in use; with `force`, return its users."""
    users = users_of(name, existing)
    if users and not force:
        raise Conflict(
            f"{name} is the dead queue of {', '.join(users[:5])}: give"
            f" {'it' if len(users) == 1 else 'them'} another one first, or force it"
            " (--force)"
        )
    return users


def _check_numbers(options: Options) -> None:
    if not 0 <= options.max_attempts <= MAX_ATTEMPTS:
        raise ConfigError(
            f"max_attempts must be 0 (unlimited) to {MAX_ATTEMPTS}, got {options.max_attempts}"
        )
    expiry = options.expire_after
    if expiry is not None and not 0 < expiry <= LONGEST:
        raise ConfigError(
            f"expire_after must be > 0 and at most {LONGEST:,.0f} seconds, got {expiry}"
        )
    if len(options.reference) > MAX_REFERENCE:
        raise ConfigError(f"a reference has at most {MAX_REFERENCE} characters")


def no_dead_queue(name: str) -> ConfigError:
    """Return the error for a dead queue that does not exist."""
    return ConfigError(f"dead_queue {name!a} does not exist; create it first")


def users_of(name: str, existing: Mapping[str, Options]) -> list[str]:
    """Return the mailboxes whose dead queue this is."""
    return sorted(
        other.name for other in existing.values() if other.dead_queue == name and other.name != name
    )


def _check_dead_queue(
    name: str, target: str, users: list[str], existing: Mapping[str, Options]
) -> None:
    if target == name:
        raise ConfigError(f"dead_queue of {name} cannot reference itself")
    found = existing.get(target)
    if found is None:
        raise no_dead_queue(target)
    if found.dead_queue is not None:
        raise ConfigError(
            f"dead_queue {target} has {found.dead_queue} as its own: a dead queue"
            " cannot have its own dead_queue"
        )
    if users:
        raise ConfigError(
            f"{name} is the dead queue of {users[0]}: a dead queue cannot have its own dead_queue"
        )
    if found.expire_after is not None:
        raise ConfigError(
            f"messages of a dead queue never expire, but {target} has an expire_after:"
            " take it away first"
        )
