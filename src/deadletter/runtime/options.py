"""How a mailbox is worked."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.failure import Failure
from deadletter.core.message import Message
from deadletter.core.policy import DLQPolicy

KeyOf: TypeAlias = Callable[[Message], str | None]
"""Reads the idempotency key out of a message whose producer gave none beside it."""

CauseOf: TypeAlias = Callable[[Failure, Message], str | None]
"""Names the cause of a failure; None leaves it to the fingerprint."""

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
    cause_of: CauseOf | None = None
    bodies_may_differ: bool = False  # the same key is the same message, whatever body
    ledger_ttl: float = LEDGER_TTL  # seconds that finished keys are remembered
    on_threads: bool = False  # the handler cannot be interrupted
    consumer: str = ""  # the handler's name
    version: str = ""  # the application's
    worker: str = ""  # the process's

    def __post_init__(self) -> None:
        for name in ("slots", "max_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(
                    f"{name}={value!r} cannot be: use a whole number, 1 or more"
                )
        for name in ("lease", "ledger_ttl"):
            value = getattr(self, name)
            if not _is_number(value) or not value > 0:
                raise ConfigError(f"{name}={value!r} cannot be: use seconds above 0")
        for name in ("time_limit", "heartbeat"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                raise ConfigError(
                    f"{name}={value!r} cannot be: use seconds above 0, or None for no "
                    "limit"
                )
        for name in ("grace", "wait"):
            value = getattr(self, name)
            if not _is_number(value) or not value >= 0:
                raise ConfigError(f"{name}={value!r} cannot be: use seconds, 0 or more")


def check_handler(
    mailbox: object,
    policy: object,
    brake: object,
    idempotent: object,
    middleware: object,
) -> None:
    """Refuse what is no mailbox, policy, brake, key or middleware."""
    if callable(mailbox):
        raise ConfigError(
            "@app.handler needs the mailbox it is for: write "
            '@app.handler("orders"), with parentheses'
        )
    if not isinstance(mailbox, str) or not mailbox:
        raise ConfigError(
            f'mailbox={mailbox!r} cannot be: use its name, as in "orders"'
        )
    if policy is not None and not isinstance(policy, DLQPolicy):
        raise ConfigError(
            f"policy={policy!r} cannot be: write DLQPolicy(max_attempts=5)"
        )
    if brake is not None and not isinstance(brake, BrakePolicy):
        raise ConfigError(
            f"brake={brake!r} cannot be: use a BrakePolicy(), or None for no brake"
        )
    if not isinstance(idempotent, bool) and not callable(idempotent):
        raise ConfigError(
            f"idempotent={idempotent!r} cannot be: use True, or a function that reads "
            "the key from the message, as in "
            'lambda message: json.loads(message.body)["id"]'
        )
    if not isinstance(middleware, Sequence) or not all(map(callable, middleware)):
        raise ConfigError(
            f"middleware={middleware!r} cannot be: use a list of functions"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
