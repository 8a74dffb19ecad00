"""Running loops: one alone, or several in one process, until they are told to stop."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from threading import Event as Signal
from typing import Any, Self

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.ports import (
    AtomicBurial,
    AtomicReplay,
    Broker,
    Engine,
    Features,
    Ledger,
    LetterStore,
)
from deadletter.runtime.deliveries import Heartbeat
from deadletter.runtime.loop_factory import LoopFactory
from deadletter.runtime.loop_group import Loop as Member
from deadletter.runtime.loop_group import LoopGroup as Group
from deadletter.runtime.loop_group import on_termination
from deadletter.runtime.registration import LetterHandler, Registration
from deadletter.runtime.sweep import Sweep
from deadletter.system import SystemClock

from .backend import Backend, in_memory
from .mailbox import BackendMailbox
from .mailbox_broker import FEATURES, MailboxBroker, in_thread
from .message import Mailbox

WAIT = 20  # seconds of long polling


class Runnable(ABC):
    """
    A loop that can be run alone or in a LoopGroup.

    `backend` is that of its mailboxes, None if they are not on one. Their letters are then
    kept by the office of `keeps_letters_in`, or of the group.
    """

    def __init__(self, backend: Backend | None, keeps_letters_in: Backend | None = None) -> None:
        self.backend = backend
        self.keeps_letters_in = keeps_letters_in
        self._heartbeat = Heartbeat(backend.clock if backend else SystemClock())
        self._running = False
        self._is_shut = False
        self._group: LoopGroup | None = None

    @property
    def running(self) -> bool:
        """Return whether the loop is at work."""
        return self._running

    @property
    def heartbeat(self) -> Heartbeat:
        """Return the heartbeat, which tells when the loop last gave a sign of life."""
        return self._heartbeat

    @property
    @abstractmethod
    def member(self) -> str:
        """Return the name of the loop in deadletter."""

    @abstractmethod
    def mailboxes(self) -> list[Mailbox[Any, Any]]:
        """Return all mailboxes of the loop."""

    @abstractmethod
    def dead_mailboxes(self) -> list[Mailbox[Any, Any]]:
        """Return the dead-letter mailboxes among them."""

    @abstractmethod
    def attach(self, broker: MailboxBroker | None) -> None:
        """Use the broker that the loop is run with; None if its mailboxes have a backend."""

    @abstractmethod
    def registration(
        self, *, visibility_timeout: float | None, wait_time_seconds: float
    ) -> Registration | LetterHandler:
        """Return what deadletter needs to know to run the loop."""

    def run(
        self, *, visibility_timeout: float | None = None, wait_time_seconds: float = WAIT
    ) -> None:
        """Work until shutdown; a loop that was shut down does not run again."""
        group = LoopGroup(loops=[self], watchdog_threshold=None)
        if self._is_shut:
            return
        group.run(
            install_signals=False,
            visibility_timeout=visibility_timeout,
            wait_time_seconds=wait_time_seconds,
        )

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """
        Stop after the current message; return whether it ended within the timeout.

        The loops of one group stop together.
        """
        self._is_shut = True
        return self._group is None or self._group.shutdown(timeout=timeout)

    def join(self, group: "LoopGroup") -> None:
        """Become a loop of a group."""
        self._group = group

    def began(self, member: Member) -> None:
        """Note that the loop runs as this member."""
        self._running = True
        member.heartbeat.add_callback(self._heartbeat.beat)

    def ended(self, member: Member) -> None:
        """Note that the loop has ended."""
        self._running = False
        member.heartbeat.remove_callback(self._heartbeat.beat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class LoopGroup:
    """
    Several loops in one process, with common signals, health checks and watchdog.

    A loop that fails is started again. The watchdog ends a process in which a loop gives no
    sign of life for `watchdog_threshold` seconds. A group runs once.

    `background` are further loops of deadletter's runtime that run beside them, such as
    retention.
    """

    def __init__(
        self,
        *,
        loops: Sequence[Runnable],
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        watchdog_threshold: float | None = 720.0,
        watchdog_interval: float = 60.0,
        shutdown_timeout: float = 30.0,
        background: Sequence[Member] = (),
    ) -> None:
        self.backend = backend_of_loops(loops)
        self.loops = loops
        for loop in loops:
            loop.join(self)
        self._health_port = health_port
        self._health_host = health_host
        self._threshold = watchdog_threshold
        self._interval = watchdog_interval
        self._shutdown_timeout = shutdown_timeout
        self._background = background
        self._group: Group | None = None
        self._is_stopping = False
        self._ended = Signal()
        self._ended.set()

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Return the address of the health checks while the group runs."""
        health = self._group.health if self._group else None
        return health.address if health else None

    def run(
        self,
        *,
        install_signals: bool = True,
        visibility_timeout: float | None = None,
        wait_time_seconds: float = WAIT,
    ) -> int:
        """
        Run all loops until they are told to stop; return 0 if all ended well.

        SIGTERM and SIGINT stop them if this is the main thread.
        """
        guard = nullcontext() if not install_signals else self._on_signals()
        self._ended.clear()
        try:
            with guard:
                return self.backend.run(self._run(visibility_timeout, wait_time_seconds))
        finally:
            self._ended.set()

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop all loops; return whether they ended within the timeout."""
        self._is_stopping = True
        if self._group is not None:
            self._group.stop()
        return self._ended.wait(timeout)

    def _on_signals(self) -> Any:
        def please() -> None:
            self._is_stopping = True
            if self._group is not None:
                self._group.stop()

        def now() -> None:
            if self._group is not None:
                self._group.hurry()

        return on_termination(please=please, now=now, clock=self.backend.clock)

    async def _run(self, visibility: float | None, wait: float) -> int:
        async with assembled(
            self.backend, self.loops, visibility_timeout=visibility, wait_time_seconds=wait
        ) as members:
            group = Group(
                [*members, *self._background],
                clock=self.backend.clock,
                observe=self.backend.observe,
                shutdown_timeout=self._shutdown_timeout,
                health_port=self._health_port,
                health_host=self._health_host,
                depth=self._depths,
                watchdog_threshold=self._threshold,
                watchdog_interval=self._interval,
                install_signals=False,
            )
            self._group = group
            if self._is_stopping:
                group.stop()
            return await group.run()

    async def _depths(self) -> Mapping[str, int]:
        dead = {box.name: box for loop in self.loops for box in loop.dead_mailboxes()}
        return {name: await _depth(box) for name, box in dead.items()}


def backend_of_loops(loops: Sequence[Runnable]) -> Backend:
    """Return the one backend of some loops: that of their mailboxes, or of their letters."""
    backends = {loop.backend for loop in loops if loop.backend is not None}
    if not backends:
        backends = {one for loop in loops if (one := loop.keeps_letters_in) is not None}
    if len(backends) > 1:
        raise ConfigError(
            f"the loops of a group must share one backend, got {len(backends)}: "
            "make their mailboxes with the same client"
        )
    return backends.pop() if backends else in_memory()


async def _depth(box: Mailbox[Any, Any]) -> int:
    if isinstance(box, BackendMailbox):
        return await box.count()
    return await in_thread(box.approximate_count)


class _OwnMailboxes(Struct):
    """The engine of mailboxes that are not on a backend."""

    broker: Broker
    features: Features = FEATURES
    letters: LetterStore | None = None
    ledger: Ledger | None = None
    atomic_burial: AtomicBurial | None = None
    atomic_replay: AtomicReplay | None = None

    async def close(self) -> None:
        """Do nothing: the mailboxes belong to whoever made them."""


@asynccontextmanager
async def assembled(
    backend: Backend,
    loops: Sequence[Runnable],
    *,
    visibility_timeout: float | None,
    wait_time_seconds: float,
) -> AsyncIterator[list[Member]]:
    """Build the loops as deadletter runs them, with the sweep of the backend."""
    add = partial(
        _add, backend, visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
    )
    members: list[Member] = []
    on_backend = [loop for loop in loops if loop.backend is not None]
    others = [loop for loop in loops if loop.backend is None]
    async with AsyncExitStack() as stack:
        if on_backend:
            members += await add(await backend.engine(), on_backend, stack.push_async_callback)
        if others:
            boxes = [box for loop in others for box in loop.mailboxes()]
            broker = MailboxBroker(boxes, await backend.keys(), backend.clock)
            for loop in others:
                loop.attach(broker)
            made = await add(_OwnMailboxes(broker), others, stack.push_async_callback)
            members += [member for member in made if not isinstance(member, Sweep)]
        yield members


async def _add(
    backend: Backend,
    engine: Engine,
    loops: Sequence[Runnable],
    on_exit: Callable[..., Any],
    *,
    visibility_timeout: float | None,
    wait_time_seconds: float,
) -> list[Member]:
    made = [
        loop.registration(
            visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
        )
        for loop in loops
    ]
    factory = LoopFactory(
        engine,
        await backend.letters(),
        handlers=[one for one in made if isinstance(one, Registration)],
        letter_handlers=[one for one in made if isinstance(one, LetterHandler)],
        clock=backend.clock,
        dice=backend.dice,
        observe=backend.observe,
    )
    close: Callable[[], Awaitable[None]] = factory.close
    on_exit(close)
    members = await factory.build()
    waiting = list(members)
    for loop in loops:
        member = next(one for one in waiting if one.name == loop.member)
        waiting.remove(member)
        loop.began(member)
        on_exit(_ended, loop, member)
    return members


async def _ended(loop: Runnable, member: Member) -> None:
    loop.ended(member)
