"""Handlers as they are registered: their options, the checks of those, and `.send`."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from inspect import isasyncgenfunction, isgeneratorfunction, signature
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from msgspec import UNSET, Struct, structs

from deadletter.core.backoff import Backoff
from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.failure import Failure
from deadletter.core.failure.classify import Rule
from deadletter.core.message import Message
from deadletter.core.policy import DLQPolicy

from .handlers import Middleware, is_async
from .outgoing import Item


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


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

KeyOf: TypeAlias = Callable[[Message], str | None]
"""Reads the idempotency key out of a message whose producer gave none beside it."""

CauseOf: TypeAlias = Callable[[Failure, Message], str | None]
"""Names the cause of a failure; None leaves it to the fingerprint."""

SLOTS: Final = 200  # async handlers running at once
THREADS: Final = 16  # ...and sync ones, each on a thread
PROCESSES: Final = 2  # ...and isolated ones, each in a process
BRAKE: Final = BrakePolicy()
LEDGER_TTL: Final = 30 * 86400.0


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of one worker."""

    policy: DLQPolicy = DLQPolicy()
    slots: int = SLOTS  # handlers running at once
    lease: float = 60.0  # seconds a delivery stays ours without a sign of life
    time_limit: float | None = 900.0  # seconds one attempt may take
    heartbeat: float | None = None  # seconds within which a handler must beat
    grace: float = 30.0  # seconds for running handlers to finish on stop
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
            if not isinstance(value, int) or value < 1 or value is True:
                raise ConfigError(f"{name} must be a whole number >= 1, got {value!r}")
        for name in ("lease", "ledger_ttl"):
            value = getattr(self, name)
            if not is_number(value) or not value > 0:
                raise ConfigError(f"{name} must be a number of seconds > 0, got {value!r}")
        for name in ("time_limit", "heartbeat"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise ConfigError(
                    f"{name} must be a number of seconds > 0, or None for no limit, got {value!r}"
                )
        for name in ("grace", "wait"):
            value = getattr(self, name)
            if not is_number(value) or not value >= 0:
                raise ConfigError(f"{name} must be a number of seconds >= 0, got {value!r}")


class Registration(Struct, frozen=True, kw_only=True):
    """A handler, and the options of its worker."""

    mailbox: str
    function: Callable[..., Any]
    options: WorkerOptions
    isolated: bool = False  # in processes of its own
    memory_limit: int | None = None  # bytes, of each of those processes
    middleware: tuple[Middleware, ...] = ()

    def naming(self, cause_of: CauseOf | None) -> "Registration":
        """Return the registration with a function that names causes."""
        if cause_of is None:
            return self
        options = structs.replace(self.options, cause_of=cause_of)
        return structs.replace(self, options=options)

    def asking(self, rules: Sequence[Rule]) -> "Registration":
        """Return the registration with rules that are tried before those of its policy."""
        if not rules:
            return self
        policy = self.options.policy
        classifier = policy.classifier.extended(*rules)
        policy = structs.replace(policy, classifier=classifier)
        options = structs.replace(self.options, policy=policy)
        return structs.replace(self, options=options)


class LetterHandler(Struct, frozen=True, kw_only=True):
    """A handler for the letters in a dead-letter mailbox."""

    mailbox: str
    function: Callable[..., Any]
    options: dict[str, Any]


class RegisteredHandler(Protocol[P, R_co]):
    """A handler as `@app.handler` returns it: the function, and its mailbox to send to."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself: nothing is sent."""

    async def send(
        self,
        body: object,
        *,
        id: str | None = None,
        key: str | None = None,
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        expires_in: float | timedelta | None = None,
        idempotency_key: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        connection: object = None,
    ) -> str:
        """Send a message to the mailbox of this handler, as `App.send` does."""

    async def send_many(
        self,
        items: Iterable[Item],
        *,
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        connection: object = None,
    ) -> list[str]:
        """Send messages to the mailbox of this handler, all or none, as `App.send_many`."""


def with_sending(
    function: Callable[P, R_co],
    send: Callable[..., Awaitable[str]],
    send_many: Callable[..., Awaitable[list[str]]],
) -> RegisteredHandler[P, R_co]:
    """
    Give a handler its `send` and `send_many`.

    The function itself is returned where it can carry them. A bound method, or a function
    that has a `send` already (of another mailbox, say), is wrapped.
    """
    target: Any = function
    try:
        if hasattr(target, "send") or hasattr(target, "send_many"):
            target = _wrapper(function)
        target.send = send
    except (AttributeError, TypeError):
        target = _wrapper(function)
        target.send = send
    target.send_many = send_many
    return cast(RegisteredHandler[P, R_co], target)


def _wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    if is_async(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return call_async

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def slots_for(
    function: Callable[..., Any], slots: int | None, default: int | None, *, isolated: bool
) -> int:
    """Return how many handlers run at once: as given, or the default of the App or ours."""
    if slots is not None:
        return slots
    if isolated:
        return PROCESSES
    if default is not None:
        return default
    return SLOTS if is_async(function) else THREADS


def policy_from(
    policy: DLQPolicy | None,
    default: DLQPolicy | None,
    *,
    max_attempts: int | None,
    backoff: Backoff | None,
    expire_after: float | None,
    dead_queue: str | None,
) -> DLQPolicy:
    """Return the policy of a handler: as given, or the default with single fields changed."""
    fields: dict[str, Any] = {
        name: value
        for name, value in (
            ("max_attempts", max_attempts),
            ("backoff", backoff),
            ("expire_after", expire_after),
            ("dead_queue", dead_queue),
        )
        if value is not None
    }
    if policy is not None and fields:
        names = ", ".join(f"{name}=" for name in fields)
        raise ConfigError(
            f"{names} cannot be combined with policy=: set it in the policy, as in"
            f" policy=DLQPolicy({next(iter(fields))}=…), or leave policy= out"
        )
    if fields:
        return structs.replace(default or DLQPolicy(), **fields)
    return policy or default or DLQPolicy()


def select(registered: Collection[str], only: Collection[str] | None) -> frozenset[str]:
    """Return the mailboxes to work: all that are registered, or those named in `only`."""
    if only is None:
        return frozenset(registered)
    if isinstance(only, str) or not only:
        raise ConfigError(
            f'only={only!r} must be a list of mailboxes, as in only=["orders", "mails"]'
        )
    if unknown := sorted(set(only) - set(registered)):
        known = ", ".join(sorted(registered)) or "none"
        raise ConfigError(
            f"no handler is registered for {', '.join(unknown)}: use mailboxes that have a"
            f" handler ({known})"
        )
    return frozenset(only)
