"""
Several loops in one process, and everything that watches over them.

    loops       started again when they die by an error of their own
    signals     the first asks all loops to stop, the second hurries them; the end
                of our supervisor, if we have one, asks too
    health      readiness fails before anything stops or is killed
    store       ends the group with StoreLost when its file is taken away
    watchdog    ends the process when a loop no longer gives a sign of life
    wreck       ends the process when there is no memory left, or no thread
    deadline    ends the process when it has been asked to stop and does not
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from types import FrameType
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

from deadletter.core.backoff import Exponential
from deadletter.core.errors import StoreLost
from deadletter.core.events import LoopDied, Observer
from deadletter.core.failure.clues import plain_name, text_of
from deadletter.core.redact import redact
from deadletter.output import dropped_note
from deadletter.ports import Clock

from .availability import RestartFailed
from .deliveries import Heartbeat
from .health import DEPTH_THRESHOLD, OUTPUT, Complaint, Depth, Exposition, HealthServer
from .lifeline import end_with_supervisor
from .watchdog import Pulse, Watchdog, end_if_wrecked, end_this_process, ending_when_wrecked


class Loop(Protocol):
    """Something that goes on until it is told to stop."""

    @property
    def name(self) -> str:
        """Return what people call it."""

    @property
    def heartbeat(self) -> Heartbeat:
        """Beaten at least once a turn."""

    async def run(self, stop: asyncio.Event) -> None:
        """
        Go on until `stop` is set and everything held is settled or given up.

        Ordinary trouble does not end it. Cancelled, it hands back at once what it
        can, and goes.
        """

    def ready(self) -> str | None:
        """Return None if the loop is ready, otherwise a sentence with the reason."""


@runtime_checkable
class Noting(Protocol):
    """A loop that has something to say although it is ready."""

    def note(self) -> str | None:
        """Return a sentence for people, or None."""


def was_cancelled() -> bool:
    """
    Return whether the running task has been cancelled from outside.

    A CancelledError without that comes out of somebody's own code, and is an
    error like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def beside(work: Coroutine[Any, Any, None], helpers: Collection[asyncio.Task[None]]) -> None:
    """
    Do the work as long as its helpers live; raise what any of them dies of.

    Without one of them it would look well and get nothing done.
    """
    working = asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({working, *helpers}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
    if working not in done:
        done.pop().result()
        raise RuntimeError("a helper of this loop ended without having been asked to")
    working.result()


AGAIN: Final = Exponential(1.0, factor=2.0, cap=30.0, jitter=0.0)
_TEXT_LIMIT: Final = 500
_HEALTHY_AFTER: Final = 60.0  # one that ran this long has got over its troubles

Run: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]


class KeptAlive:
    """
    Runs `run` until it is told to stop, whatever it dies of meanwhile.

    Every death is told as a LoopDied, and the next start waits longer. `run` is
    handed the event that tells it to end, and ends by itself once that is set.
    """

    def __init__(self, name: str, run: Run, *, clock: Clock, observe: Observer) -> None:
        self.is_running = False
        self.trouble: str | None = "it has not been started yet"
        self._name = name
        self._run = run
        self._clock = clock
        self._observe = observe
        self._deaths = 0
        self._stop = asyncio.Event()
        self._task: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> Self:
        self.trouble = None
        self._task = asyncio.create_task(self.run(self._stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    async def run(self, stop: asyncio.Event) -> bool:
        """Run it until `stop` is set; whether it ended well then."""
        while not stop.is_set():
            started = self._clock.monotonic()
            why = await self._once(stop)
            if stop.is_set() and not why:
                break
            why = why or "it ended without having been asked to"
            if self._clock.monotonic() - started >= _HEALTHY_AFTER:
                self._deaths = 0
            self._deaths += 1
            delay = AGAIN.delay(self._deaths, 0.0)
            self.trouble = f"it died and starts again in {delay:.0f} s: {why}"
            with suppress(Exception):  # an observer's trouble is not ours
                self._observe(LoopDied(mailbox="", loop=self._name, text=why))
            if stop.is_set():
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
        return True

    async def _once(self, stop: asyncio.Event) -> str:
        """Return what it died of; nothing when it just ended."""
        self.is_running = True
        self.trouble = None
        try:
            await self._run(stop)
        except BaseException as error:
            if was_cancelled():
                raise asyncio.CancelledError from error
            end_if_wrecked(error)
            if isinstance(error, RestartFailed):
                raise
            return _why(error)  # whatever it was: it may not end the others
        finally:
            self.is_running = False
            self.trouble = "it has ended"
        return ""


def _why(error: BaseException) -> str:
    return redact(f"{plain_name(type(error))}: {text_of(error, _TEXT_LIMIT)}")


TERMINATION: Final = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED: Final = 128 + signal.SIGINT  # the exit code of who was told twice
_SAME: Final = 0.1  # seconds: systemd signals us and our supervisor, who passes it on


def heeded(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    """
    List those of these signals that are for us.

    A shell that runs us in the background, or `nohup`, has interrupts ignored: those
    of its terminal are meant for others. SIGTERM is always for us.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return [one for one in numbers if one is not signal.SIGINT or not is_ignored]


@contextmanager
def on_termination(
    *, please: Callable[[], None], now: Callable[[], None], clock: Clock
) -> Iterator[None]:
    """
    Call `please` on the first signal and `now` on the second.

    Two that come at the same moment are one, said by two. The third ends the
    process the way the system does it, even when the event loop is blocked and
    nothing of what was asked for can happen. Must be entered in the main thread;
    the handlers of before are put back. Interrupts that whoever started us has
    ignored stay ignored (`heeded`).
    """
    came, last = 0, 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came, last
        since, last = clock.monotonic() - last, clock.monotonic()
        if came and since < _SAME:
            return
        came += 1
        if came == 1:
            please()
        elif came == 2:
            now()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, handle) for number in heeded(TERMINATION)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


# Loops, connections and threads may be in any state by then: nobody is asked any more.
# What was held comes back when its lease runs out.

_TICK: Final = 0.25  # seconds between two looks
_LAST_WORDS: Final = 0.2


class EndDeadline:
    """
    Ends the process some time after it was asked to stop, unless it is over by then.

    It is watched from a thread of its own while a `with` block lasts; the outermost
    one counts.
    """

    def __init__(self, kill: Callable[[], None] = end_this_process) -> None:
        self._kill = kill
        self._depth = 0
        self._over = Event()
        self._due: float | None = None
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1:
            self._over.clear()
            Thread(target=self._watch, name="dlq-end-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._over.set()

    def set(self, seconds: float) -> None:
        """Be gone in so many seconds; only the first call counts."""
        # Called by signals, in the middle of anything: no lock may be taken here.
        if self._due is None:
            self._seconds = seconds
            self._due = monotonic() + seconds

    def _watch(self) -> None:
        while not self._over.wait(_TICK):
            if self._due is not None and monotonic() >= self._due:
                # On a thread: whatever writes to stderr may be what is stuck.
                with suppress(RuntimeError):  # no thread is left to be had
                    Thread(target=self._tell, daemon=True).start()
                self._over.wait(_LAST_WORDS)
                self._kill()
                return

    def _tell(self) -> None:
        if sys.__stderr__ is not None:
            seconds = f"{self._seconds:.0f} s"
            print(f"not stopped {seconds} after being asked to", file=sys.__stderr__)


_STORE_CHECK: Final = 0.5  # seconds between two looks at the store's files
_RELEASE_TIMEOUT: Final = 5.0  # seconds cancelled loops have to hand back what they hold


class _Member:
    """A loop and how it is doing."""

    def __init__(self, loop: Loop, clock: Clock, observe: Observer) -> None:
        self.loop = loop
        self.alive = KeptAlive(loop.name, self._run, clock=clock, observe=observe)

    async def _run(self, stop: asyncio.Event) -> None:
        self.loop.heartbeat.beat()
        await self.loop.run(stop)


class LoopGroup:
    """
    Runs loops together until it is told to stop; it runs once.

    Within `shutdown_timeout` after the stop each loop ends by itself; what is left
    is cancelled. `watchdog_threshold` must be longer than the longest turn of any
    loop; None does without a watchdog.
    """

    def __init__(
        self,
        loops: Iterable[Loop],
        *,
        clock: Clock,
        observe: Observer,
        shutdown_timeout: float = 30.0,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        depth: Depth | None = None,
        depth_threshold: int = DEPTH_THRESHOLD,
        metrics: Exposition | None = None,
        watchdog_threshold: float | None = 720.0,
        watchdog_interval: float = 60.0,
        lost: Callable[[], str | None] = lambda: None,
        install_signals: bool = True,
        deadline: EndDeadline | None = None,
        kill: Callable[[], None] = end_this_process,
    ) -> None:
        self._members = [_Member(loop, clock, observe) for loop in loops]
        self._clock = clock
        self._observe = observe
        self._shutdown_timeout = shutdown_timeout
        self._threshold = watchdog_threshold
        self._interval = watchdog_interval
        self._install_signals = install_signals
        self._kill = kill
        self._find_loss = lost
        self._lost: str | None = None  # why the store cannot be used any more
        self._deadline = deadline or EndDeadline(kill)
        self._is_running = False
        self._is_stopping = False
        self._ended_badly = False
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self.health: HealthServer | None = None
        if health_port is not None:
            self.health = HealthServer(
                self._ready,
                notes=self._notes,
                host=health_host,
                port=health_port,
                depth=depth,
                depth_threshold=depth_threshold,
                metrics=metrics,
            )

    async def run_until(self, stop: asyncio.Event) -> int:
        """Run all loops until this is set, or as `run` does."""

        async def watch() -> None:
            await stop.wait()
            self.stop()

        watching = asyncio.create_task(watch())
        try:
            return await self.run()
        finally:
            watching.cancel()

    async def run(self) -> int:
        """
        Run all loops until stopped by `stop()` or a signal.

        Raises StoreLost once `lost` says why the store cannot be used any more.
        Gives the exit code: 0 when every loop ended by itself, and in time; 130 when
        somebody did not let them.
        """
        self._event_loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            if self._install_signals:
                stack.enter_context(ending_when_wrecked())
                stack.enter_context(
                    on_termination(please=self.stop, now=self.hurry, clock=self._clock)
                )
                end_with_supervisor(self.stop, grace=self._longest_end)
                stack.enter_context(self._deadline)
            if self.health is not None:
                await self.health.start()
            if self._threshold is not None:
                stack.callback(self._watch(self._threshold).stop)
            try:
                return await self._run_loops()
            finally:
                self._is_running = False
                if self.health is not None:
                    await self.health.close()

    def stop(self) -> None:
        """
        Ask all loops to stop, from any thread, more than once if need be.

        Readiness fails from this moment on.
        """
        self._is_stopping = True
        self._deadline.set(self._longest_end)
        self._set(self._stop)

    def hurry(self) -> None:
        """Stop now: cancel what has not ended yet."""
        self.stop()
        self._set(self._hurry)

    @property
    def _longest_end(self) -> float:
        """Return the seconds from the stop until the process must be gone."""
        return self._shutdown_timeout + 2 * _RELEASE_TIMEOUT

    def complaints(self) -> list[Complaint]:
        """Return why we are not ready, loop by loop; empty when all is well."""
        if self._is_stopping or not self._is_running:
            state = "stopping" if self._is_stopping else "starting"
            return [Complaint("group", state)]
        found = ((m.loop.name, self._complaint(m)) for m in self._members)
        return [Complaint(name, reason) for name, reason in found if reason]

    async def _notes(self) -> list[Complaint]:
        loops = [m.loop for m in self._members if isinstance(m.loop, Noting)]
        notes = ((loop.name, loop.note()) for loop in loops)
        return [
            Complaint(name, said)
            for name, said in (*notes, (OUTPUT, dropped_note(self._clock.now())))
            if said
        ]

    async def _ready(self) -> list[Complaint]:
        return self.complaints()

    def _complaint(self, member: _Member) -> str | None:
        if member.alive.trouble is not None:
            return member.alive.trouble
        quiet = member.loop.heartbeat.elapsed()
        if self._threshold is not None and quiet > self._threshold / 2:
            return f"no sign of life for {quiet:.0f} seconds"
        try:
            return member.loop.ready()
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is not ready
            return f"it cannot say how it is: {type(error).__name__}"

    def _watch(self, threshold: float) -> Watchdog:
        watchdog = Watchdog(
            self._pulses,
            threshold=threshold,
            interval=self._interval,
            clock=self._clock,
            observe=self._observe,
            kill=self._kill,
        )
        watchdog.start()
        return watchdog

    def _pulses(self) -> Sequence[Pulse]:
        return [
            Pulse(member.loop.name, member.loop.heartbeat.elapsed())
            for member in self._members
            if member.alive.is_running
        ]

    async def _run_loops(self) -> int:
        tasks = {asyncio.create_task(self._keep(member)) for member in self._members}
        watching = asyncio.create_task(self._watch_store())
        self._is_running = True
        try:
            await self._until_stopped(tasks)
            await self._until_ended(tasks)
        finally:
            watching.cancel()
            late = {task for task in tasks if not task.done()}
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_RELEASE_TIMEOUT)
        if self._lost is not None:
            raise StoreLost(self._lost)
        if late and self._hurry.is_set():
            return INTERRUPTED
        return 1 if late or self._ended_badly else 0

    async def _watch_store(self) -> None:
        """Stop at once when the store is gone: nothing can be settled any more."""
        while (problem := self._find_loss()) is None:  # noqa: ASYNC110 -- a file
            await asyncio.sleep(_STORE_CHECK)
        self._lost = problem
        self.hurry()

    async def _until_stopped(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait for the stop; a loop that is not kept alive any more is one as well."""
        asked = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({asked, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if not self._stop.is_set():
            self._ended_badly = True
            self.stop()
            await self._stop.wait()

    async def _until_ended(self, tasks: set[asyncio.Task[None]]) -> None:
        if not tasks:
            return
        ended = asyncio.ensure_future(asyncio.wait(tasks))
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait(
                {ended, hurry}, timeout=self._shutdown_timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
            hurry.cancel()

    async def _keep(self, member: _Member) -> None:
        """Run a loop, and again whenever it dies before its time."""
        try:
            ended_well = await member.alive.run(self._stop)
        except RestartFailed as error:
            ended_well = False
            name, text = member.loop.name, f"the process ends: {error}"
            self._observe(LoopDied(mailbox="", loop=name, text=text))
        if not ended_well:
            self._ended_badly = True

    def _set(self, event: asyncio.Event) -> None:
        if self._event_loop is None:
            event.set()
        else:
            with suppress(RuntimeError):  # the event loop has closed: all is over
                self._event_loop.call_soon_threadsafe(event.set)
