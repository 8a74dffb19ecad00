"""Checks of handlers, policies and options where an application defines them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isasyncgenfunction, isgeneratorfunction, signature

from msgspec import UNSET

from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.policy import DLQPolicy


def check_handler(mailbox: object, idempotent: object) -> None:
    """Raise ConfigError for an invalid mailbox name or reader of keys."""
    check_mailbox(mailbox, "handler")
    if not isinstance(idempotent, bool) and not callable(idempotent):
        raise ConfigError(
            f"idempotent must be True, False or a function, got {idempotent!r}: a function "
            "reads the key from the message, as in "
            'lambda message: json.loads(message.body)["id"]'
        )
    if callable(idempotent):
        check_takes(idempotent, "the function that idempotent= names", "message")


def check_mailbox(mailbox: object, decorator: str = "") -> None:
    """Raise ConfigError for an invalid mailbox name, or a decorator without parentheses."""
    if decorator and callable(mailbox):
        raise ConfigError(
            f"@app.{decorator} needs the name of its mailbox: write "
            f'@app.{decorator}("orders"), with parentheses'
        )
    if not isinstance(mailbox, str) or not mailbox:
        raise ConfigError(f'mailbox must be a name, as in "orders", got {mailbox!r}')


def check_function(function: object) -> None:
    """Raise ConfigError for a handler that is not callable, or that is a generator."""
    if not callable(function):
        raise ConfigError(
            f"a handler must be a function, got {function!r}: write "
            '@app.handler("orders") above a function'
        )
    calls = (function, getattr(function, "__call__", None))  # noqa: B004
    if any(isgeneratorfunction(one) or isasyncgenfunction(one) for one in calls):
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f"handler {name} is a generator, so calling it would not run its body: "
            "remove `yield`, and return the answer"
        )


def check_takes(function: Callable[..., object], what: str, *parameters: str) -> None:
    """Raise ConfigError for a function that cannot be called with these parameters."""
    try:
        found = signature(function)
    except (TypeError, ValueError):  # built in: nothing is known of it
        return
    try:
        found.bind(*parameters)
    except TypeError as error:
        raise ConfigError(
            f"{what} is called as {getattr(function, '__name__', 'it')}"
            f"({', '.join(parameters)}), but takes {found}: {error}"
        ) from error


def check_importable(function: object, isolation: str | None) -> None:
    """Raise ConfigError for an isolated handler that another process could not import."""
    name = getattr(function, "__qualname__", repr(function))
    if isolation is not None and "<" in name:
        raise ConfigError(
            f"{name} cannot be run in another process: an isolated handler must be a "
            "function at the top of a module"
        )


def check_bodies(bodies: object) -> None:
    """Raise ConfigError for one body where many are expected."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping):
        raise ConfigError(
            f"send_many takes a list of bodies, got {type(bodies).__name__}: "
            "write [body], or use send for one message"
        )
    if not isinstance(bodies, Iterable):
        raise ConfigError(f"send_many takes a list of bodies, got {bodies!r}: write [body]")


def check_defaults(policy: object, brake: object, middleware: object) -> None:
    """Raise ConfigError for an invalid policy, brake or list of middleware."""
    if policy is not None and not isinstance(policy, DLQPolicy):
        raise ConfigError(
            f"policy must be a DLQPolicy, got {policy!r}: write DLQPolicy(max_attempts=5)"
        )
    if brake not in (None, UNSET) and not isinstance(brake, BrakePolicy):
        raise ConfigError(f"brake must be a BrakePolicy, or None for no brake, got {brake!r}")
    if not isinstance(middleware, Sequence) or not all(map(callable, middleware)):
        raise ConfigError(f"middleware must be a list of functions, got {middleware!r}")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_isolation(isolation: object, memory_limit: int | None) -> None:
    """Raise ConfigError for an unknown isolation, or a limit without isolation."""
    if isolation not in (None, "process"):
        raise ConfigError(f'isolation must be "process" or None, got {isolation!r}')
    if memory_limit is None:
        return
    if isolation is None:
        raise ConfigError('memory_limit applies to isolated handlers only: add isolation="process"')
    if memory_limit <= 0:
        raise ConfigError(f"memory_limit must be a number of bytes > 0, got {memory_limit}")
