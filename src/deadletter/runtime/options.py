"""How a mailbox is worked."""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.message import Message
from deadletter.core.policy import DLQPolicy

KeyOf: TypeAlias = Callable[[Message], str | None]
"""Reads the idempotency key out of a message whose producer gave none beside it."""

SLOTS: Final = 200  # async handlers running at once
THREADS: Final = 16  # ...and sync ones, each on a thread
BRAKE: Final = BrakePolicy()
LEDGER_TTL: Final = 30 * 86400.0


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a mailbox is worked."""

    policy: DLQPolicy = DLQPolicy()
    slots: int = SLOTS  # handlers running at once
    lease: float = 60.0  # seconds a delivery stays ours without a sign of life
    time_limit: float | None = 900.0  # seconds one attempt may take
    heartbeat: float | None = None  # seconds within which a handler must beat
    grace: float = 30.0  # seconds to finish what is running when asked to stop
    max_bytes: int = 64 * 1024 * 1024  # of bodies in flight
    wait: float = 1.0  # seconds of long polling
    brake: BrakePolicy | None = BRAKE
    idempotent: bool = False
    key_of: KeyOf | None = None
    bodies_may_differ: bool = False  # the same key is the same message, whatever body
    ledger_ttl: float = LEDGER_TTL  # seconds that finished keys are remembered
    on_threads: bool = False  # the handler cannot be interrupted
    consumer: str = ""  # the handler's name
    version: str = ""  # the application's
    worker: str = ""  # the process's

    def __post_init__(self) -> None:
        for name in ("slots", "lease", "max_bytes", "ledger_ttl"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0")
        for name in ("time_limit", "heartbeat"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(
                    f"{name} must be greater than 0, or None for no limit"
                )
        if not (self.grace >= 0 and self.wait >= 0):
            raise ConfigError("grace and wait must not be negative")


def check_isolation(isolation: object, memory_limit: int | None) -> None:
    """Refuse an isolation that would be none, and a limit nothing would keep."""
    if isolation not in (None, "process"):
        raise ConfigError(f'isolation={isolation!r} cannot be: use "process", or None')
    if memory_limit is None:
        return
    if isolation is None:
        raise ConfigError('memory_limit needs isolation="process"')
    if memory_limit <= 0:
        raise ConfigError(f"memory_limit={memory_limit} cannot be: use bytes above 0")
