"""Registration of handlers, hooks and drains: the part of an App that decorates functions."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

from deadletter.core.backoff import Backoff
from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.failure.classify import Rule
from deadletter.core.failure.clues import described
from deadletter.core.policy import DLQPolicy
from deadletter.intake.dialects import Trusted
from deadletter.runtime.handlers import Middleware, typed
from deadletter.runtime.registration import (
    LEDGER_TTL,
    CauseOf,
    KeyOf,
    LetterHandler,
    RegisteredHandler,
    Registration,
    WorkerOptions,
    check_defaults,
    check_function,
    check_handler,
    check_importable,
    check_isolation,
    check_mailbox,
    check_takes,
    policy_from,
    slots_for,
    with_sending,
)
from deadletter.wiring.foreign import Dead

from .ports import Clock, Sink
from .system import process_name

Hook: TypeAlias = Callable[[], object | Awaitable[object]]
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
AnyHook = TypeVar("AnyHook", bound=Hook)


class Lifecycle:
    """The start-up and shutdown hooks of one App, and its lifespan."""

    def __init__(self, lifespan: Lifespan | None) -> None:
        if lifespan is not None and not _is_lifespan(lifespan):
            raise ConfigError(
                f"lifespan={_name(lifespan)} must be a function of the App that returns an async"
                " context manager: decorate it with @contextlib.asynccontextmanager"
            )
        self._lifespan = lifespan
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []

    def add_startup(self, hook: Hook) -> None:
        """Run the hook before the first message is taken."""
        _check("on_startup", hook)
        self._startup.append(hook)

    def add_shutdown(self, hook: Hook) -> None:
        """Run the hook after the last handler has ended."""
        _check("on_shutdown", hook)
        self._shutdown.append(hook)

    @asynccontextmanager
    async def running(self, app: object) -> AsyncIterator[None]:
        """
        Start the application, and shut it down at the end.

        Raises ConfigError when a hook fails. Shutdown hooks run in the reverse order, each
        of them even when another one failed, but only after a complete start.
        """
        async with AsyncExitStack() as stack:
            if self._lifespan is not None:
                await _guarded("lifespan", self._lifespan, self._enter(stack, app))
            for hook in self._startup:
                await _guarded("start-up hook", hook, _call(hook))
            for hook in self._shutdown:  # an exit stack runs them last to first
                stack.push_async_callback(_guarded, "shutdown hook", hook, None)
            yield

    async def _enter(self, stack: AsyncExitStack, app: object) -> None:
        assert self._lifespan is not None
        manager = self._lifespan(app)
        if not hasattr(manager, "__aenter__"):
            raise TypeError(
                "it returned no async context manager: decorate it with"
                " @contextlib.asynccontextmanager"
            )
        await stack.enter_async_context(manager)


def _is_lifespan(given: object) -> bool:
    return callable(given) and not inspect.isasyncgenfunction(given)


async def _call(hook: Hook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result


async def _guarded(kind: str, hook: Callable[..., object], run: Awaitable[None] | None) -> None:
    """Run a hook, or what it is given for it; raise ConfigError with its name if it fails."""
    try:
        await (_call(hook) if run is None else run)
    except Exception as error:
        when = "the handlers have ended" if kind == "shutdown hook" else "no message was taken"
        raise ConfigError(
            f"the {kind} {_name(hook)} failed with {described(error)}: {when}"
        ) from error


def _check(decorator: str, hook: object) -> None:
    if not callable(hook):
        raise ConfigError(
            f"@app.{decorator} takes a function, got {hook!r}: write it above a function"
            " without parameters"
        )
    try:
        inspect.signature(hook).bind()
    except TypeError as error:
        raise ConfigError(
            f"@app.{decorator} calls {_name(hook)} without arguments: remove its parameters"
            f" or give them defaults ({error})"
        ) from error
    except ValueError:
        pass  # a builtin without a signature


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", None) or repr(hook))


Function = TypeVar("Function", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
Sending: TypeAlias = Callable[[Sink, Clock], Sink]
"""Wraps the sink that an App sends through."""


class HandlerRegistry:
    """
    Handlers by mailbox, with their options, hooks and drains.

    `App` adds the engine they run on, and sending.
    """

    def __init__(
        self,
        *,
        version: str,
        policy: DLQPolicy | None,
        middleware: Sequence[Middleware],
        brake: BrakePolicy | None,
        slots: int | None,
        lifespan: Lifespan | None,
        send: Callable[..., Coroutine[Any, Any, str]],
        send_many: Callable[..., Coroutine[Any, Any, list[str]]],
    ) -> None:
        if not isinstance(version, str):
            raise ConfigError(f'version must be text, got {version!r}: write version="{version}"')
        check_defaults(policy, brake, middleware)
        if slots is not None:
            WorkerOptions(slots=slots)  # raises if it is invalid
        self.version = version
        self.policy = policy
        self.middleware: Sequence[Middleware] = tuple(middleware)
        self.brake = brake
        self.slots = slots
        self._handlers: dict[str, Registration] = {}
        self._letter_handlers: dict[str, LetterHandler] = {}
        self._cause_of: CauseOf | None = None
        self.rules: Sequence[Rule] = ()  # tried before those of any policy
        self._dead: list[Dead] = []
        self._lifecycle = Lifecycle(lifespan)
        self.sends = (send, send_many)

    def handler(
        self,
        mailbox: str,
        *,
        policy: DLQPolicy | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        expire_after: float | None = None,
        dead_queue: str | None = None,
        slots: int | None = None,
        lease: float = 60.0,
        time_limit: float | None = 900.0,
        heartbeat: float | None = None,
        grace: float = 30.0,
        brake: BrakePolicy | UnsetType | None = UNSET,
        idempotent: bool | KeyOf = False,
        ledger_ttl: float = LEDGER_TTL,
        bodies_may_differ: bool = False,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> Callable[[Callable[P, R]], RegisteredHandler[P, R]]:
        """
        Register a function, sync or async, as the handler of a mailbox.

        The annotation of its first parameter decides how the body is decoded. What it
        returns is sent to the message's `reply_to`. The function stays callable, and gets
        `send` and `send_many`, which send to its mailbox.

        Args:
            mailbox: The mailbox to receive from; it is created if it does not exist.
            policy: When to retry and when to bury (default: the App's, else DLQPolicy()).
            max_attempts: Shorthand for this field of the policy (DLQPolicy: 10; 0 means
                unlimited). No shorthand can be combined with policy=.
            backoff: Shorthand for the pause before each retry (DLQPolicy: 1 s, times 4, at
                most 2 h).
            expire_after: Shorthand for the seconds after sending when a message is no longer
                run (DLQPolicy: no limit).
            dead_queue: Shorthand for the mailbox that gets copies of letters (DLQPolicy: none).
            slots: Handlers at once (default: the App's, else 200 async, 16 sync, 2 isolated).
            lease: Seconds a delivery stays ours without a sign of life (default 60).
            time_limit: Seconds one attempt may take; None for no limit (default 900).
            heartbeat: Seconds within which the handler must call `Context.beat` (default:
                None, it need not).
            grace: Seconds a running handler gets to finish on stop (default 30).
            brake: When to stop fetching because everything fails; None for no brake (default:
                the App's, else BrakePolicy()).
            idempotent: True handles each key once; a function reads missing keys (default False).
            ledger_ttl: Seconds that finished keys are remembered (default 30 days).
            bodies_may_differ: Accept another body under a handled key as the same message;
                otherwise it becomes a dead letter (default False).
            isolation: "process" runs the handler in processes of its own (default None).
            memory_limit: Bytes that each of those processes may use (default: no limit).
            middleware: Middleware around this handler, inside of the App's (default: none).
        """
        check_handler(mailbox, idempotent)
        check_defaults(policy, brake, middleware)
        check_isolation(isolation, memory_limit)
        chosen = policy_from(
            policy,
            self.policy,
            max_attempts=max_attempts,
            backoff=backoff,
            expire_after=expire_after,
            dead_queue=dead_queue,
        )

        def register(function: Callable[P, R]) -> RegisteredHandler[P, R]:
            check_function(function)
            check_importable(function, isolation)
            self._claim(mailbox)
            chosen.check_mailbox(mailbox)
            typed(function)  # wrong signatures are found here, not at the first message
            options = WorkerOptions(
                policy=chosen,
                slots=slots_for(function, slots, self.slots, isolated=bool(isolation)),
                lease=lease,
                time_limit=time_limit,
                heartbeat=heartbeat,
                grace=grace,
                brake=self.brake if isinstance(brake, UnsetType) else brake,
                idempotent=bool(idempotent),
                key_of=idempotent if callable(idempotent) else None,
                ledger_ttl=ledger_ttl,
                bodies_may_differ=bodies_may_differ,
                consumer=getattr(function, "__qualname__", mailbox),
                version=self.version,
                worker=process_name(),
            )
            self._handlers[mailbox] = Registration(
                mailbox=mailbox,
                function=function,
                options=options,
                isolated=isolation == "process",
                memory_limit=memory_limit,
                middleware=(*self.middleware, *middleware),
            )
            send, send_many = self.sends
            return with_sending(function, partial(send, mailbox), partial(send_many, mailbox))

        return register

    def on_startup(self, hook: AnyHook) -> AnyHook:
        """
        Run a function, sync or async, before the first message is taken.

        If it raises, `work` raises ConfigError and takes no message. Hooks run in the order
        of their registration, in each process of `dlq work`, and not where an App only sends.
        """
        self._lifecycle.add_startup(hook)
        return hook

    def on_shutdown(self, hook: AnyHook) -> AnyHook:
        """
        Run a function, sync or async, after the last handler has ended.

        Hooks run last to first, each of them even when another one failed; and only if the
        start was complete.
        """
        self._lifecycle.add_shutdown(hook)
        return hook

    def letter_handler(
        self,
        mailbox: str,
        *,
        wait: float = 20.0,
        interval: float = 0.0,
        visibility_timeout: float = 300.0,
        on_failure: float = 3600.0,
    ) -> Callable[[Function], Function]:
        """
        Register a handler for the letters in a dead-letter mailbox.

        The function is called with each DeadLetter. A letter it fails on comes again
        after `on_failure` seconds; it is never dead-lettered again.

        Args:
            mailbox: The dead-letter mailbox to receive from.
            wait: Seconds of one long poll (default 20).
            interval: Seconds between two polls (default 0).
            visibility_timeout: Seconds a letter stays ours while it is handled (default 300).
            on_failure: Seconds until a letter comes again that failed (default 3600).
        """

        check_mailbox(mailbox, "letter_handler")

        def register(function: Function) -> Function:
            check_function(function)
            check_takes(function, "the function of a letter handler", "letter")
            self._claim(mailbox)
            self._letter_handlers[mailbox] = LetterHandler(
                mailbox=mailbox,
                function=function,
                options={
                    "wait": wait,
                    "interval": interval,
                    "visibility_timeout": visibility_timeout,
                    "on_failure": on_failure,
                },
            )
            return function

        return register

    def fingerprint(self, function: CauseOf) -> CauseOf:
        """
        Name causes yourself: letters of one mailbox and one name are one group.

        The function is called with the failure and the message of each failed attempt. It
        returns the name of the cause, or None to leave it to the office. The office also
        decides if the function raises.
        """
        if not callable(function):
            raise ConfigError(
                f"@app.fingerprint takes a function, got {function!r}: write it without"
                " parentheses, above a function of a failure and a message"
            )
        check_takes(function, "the function of @app.fingerprint", "failure", "message")
        self._cause_of = function
        return function

    def drain(self, server: str, *places: str, sources: Sequence[str] = ()) -> None:
        """
        Drain dead-letter queues of other systems into the office while handlers run.

        `server` is an amqp://, kafka://, nats://, redis:// or sqs:// URL. Without `places`,
        all dead-letter queues that can be recognised are drained. Headers may name the
        mailbox a letter came from if a place is named after it, or it matches `sources`,
        as in `orders.*`.
        """
        self._dead.append(Dead(server, places, Trusted(tuple(sources))))

    def registrations(self, rules: Sequence[Rule] = ()) -> list[Registration]:
        """Return the handlers, with rules that are tried before those of their policies."""
        return [one.asking(rules).naming(self._cause_of) for one in self._handlers.values()]

    def letter_handlers(self) -> list[LetterHandler]:
        """Return the handlers of letters."""
        return list(self._letter_handlers.values())

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run start-up hooks and the lifespan on entry, and shut down on exit."""
        return self._lifecycle.running(self)

    def _claim(self, mailbox: str) -> None:
        if mailbox in self._handlers or mailbox in self._letter_handlers:
            raise ConfigError(f"mailbox {mailbox!r} has a handler already: use another mailbox")
