"""Running loops: alone or several in one process, until they are told to stop."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from threading import Event as Signal
from typing import Any, Self

from deadletter.core.errors import ConfigError
from deadletter.runtime.deliveries import Heartbeat
from deadletter.runtime.loop_factory import LoopFactory
from deadletter.runtime.loop_group import Loop as Member
from deadletter.runtime.loop_group import LoopGroup as Group
from deadletter.runtime.loop_group import on_termination
from deadletter.runtime.registration import LetterHandler, Registration

from .mailbox import PostMailbox
from .post import Post

WAIT = 20.0  # seconds of long polling


class Runnable(ABC):
    """A loop that can be run alone or in a LoopGroup."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self._heartbeat = Heartbeat(post.clock)
        self._running = False
        self._is_shut = False
        self._group: LoopGroup | None = None

    @property
    def running(self) -> bool:
        """Whether it is at work."""
        return self._running

    @property
    def heartbeat(self) -> Heartbeat:
        """When it last gave a sign of life."""
        return self._heartbeat

    @property
    @abstractmethod
    def member(self) -> str:
        """What deadletter calls its loop."""

    @abstractmethod
    def dead_mailboxes(self) -> list[PostMailbox[Any, Any]]:
        """The dead-letter mailboxes it has to do with."""

    @abstractmethod
    def registration(
        self, *, visibility_timeout: float | None, wait_time_seconds: float
    ) -> Registration | LetterHandler:
        """What deadletter needs to know to run it."""

    def run(
        self, *, visibility_timeout: float | None = None, wait_time_seconds: float = WAIT
    ) -> None:
        """Work until it is shut down, which is for good."""
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
        Stop after what is in hand; says whether that was in time.

        Those that run in one group stop together.
        """
        self._is_shut = True
        return self._group is None or self._group.shutdown(timeout=timeout)

    def join(self, group: "LoopGroup") -> None:
        self._group = group

    def began(self, member: Member) -> None:
        self._running = True
        member.heartbeat.add_callback(self._heartbeat.beat)

    def ended(self, member: Member) -> None:
        self._running = False
        member.heartbeat.remove_callback(self._heartbeat.beat)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class LoopGroup:
    """
    Several loops in one process: signals, health and a watchdog for all of them.

    A loop that dies by an error of its own is started again; a process in which one
    gives no sign of life for `watchdog_threshold` seconds is ended. It runs once.
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
    ) -> None:
        posts = {loop.post for loop in loops}
        if len(posts) != 1:
            raise ConfigError("the loops of one group are on one Post")
        self.loops = loops
        for loop in loops:
            loop.join(self)
        self._post = posts.pop()
        self._health_port = health_port
        self._health_host = health_host
        self._threshold = watchdog_threshold
        self._interval = watchdog_interval
        self._patience = shutdown_timeout
        self._group: Group | None = None
        self._is_stopping = False
        self._ended = Signal()
        self._ended.set()

    @property
    def health_address(self) -> tuple[str, int] | None:
        """Where it answers health checks, while it runs."""
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
        Run all loops until they are told to stop; 0 when all ended well.

        SIGTERM and SIGINT tell them, in the main thread.
        """
        guard = nullcontext() if not install_signals else self._on_signals()
        self._ended.clear()
        try:
            with guard:
                return self._post.call(self._run(visibility_timeout, wait_time_seconds))
        finally:
            self._ended.set()

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Have all of them stop; says whether they did in time."""
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

        return on_termination(please=please, now=now, clock=self._post.clock)

    async def _run(self, visibility: float | None, wait: float) -> int:
        async with assembled(
            self._post, self.loops, visibility_timeout=visibility, wait_time_seconds=wait
        ) as members:
            group = Group(
                members.values(),
                clock=self._post.clock,
                observe=self._post.observe,
                shutdown_timeout=self._patience,
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
        return {name: await box.count() for name, box in dead.items()}


@asynccontextmanager
async def assembled(
    post: Post,
    loops: Sequence[Runnable],
    *,
    visibility_timeout: float | None,
    wait_time_seconds: float,
) -> AsyncIterator[dict[str, Member]]:
    """The loops as deadletter runs them, by name, with the sweep beside them."""
    made = [
        loop.registration(
            visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
        )
        for loop in loops
    ]

    factory = LoopFactory(
        await post.engine(),
        await post.letters(),
        handlers=[one for one in made if isinstance(one, Registration)],
        letter_handlers=[one for one in made if isinstance(one, LetterHandler)],
        clock=post.clock,
        dice=post.dice,
        observe=post.observe,
    )
    members: dict[str, Member] = {}
    try:
        members = {member.name: member for member in await factory.build()}
        for loop in loops:
            loop.began(members[loop.member])
        yield members
    finally:
        for loop in loops:
            if loop.member in members:
                loop.ended(members[loop.member])
        await factory.close()
