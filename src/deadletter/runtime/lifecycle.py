"""Hooks of an application: what runs before its first message and after its last."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from deadletter.core.errors import ConfigError
from deadletter.core.failure.clues import described

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
