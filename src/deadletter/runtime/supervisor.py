"""
Several processes of one command, started again when they die, and their health.

The supervisor does nothing else: it has no connection that a crash could corrupt, and no
event loop except the one that answers probes, if `answer_probes` is used. Children end
when the supervisor is gone: each watches a pipe that only the supervisor holds open, and
on Linux the kernel signals them too. Each child reports once, on a pipe of its own, that
it receives messages; `replace_after` uses that to decide when to start the next one.

For a probe, the supervisor asks each child on a socket that it made for that child. The
supervisor is ready when every child is.
"""

import asyncio
import math
import os
import selectors
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from types import FrameType
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.backoff import Exponential
from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.ports import Clock

from .health import Complaint, HealthServer
from .lifeline import LISTENER_FD, PLACE, PROGRESS_FD, SUPERVISOR_FD
from .loop_group import INTERRUPTED, heeded

# One that took messages died of its work: a poison message, say. Its attempt has been
# counted, so that cannot go on for ever, and others wait to be worked: it is replaced
# at once. One that took none died of its surroundings: an import that fails, a disk
# that is full. Starting it again changes nothing soon, so the wait grows.

AGAIN: Final = Exponential(0.5, factor=2.0, cap=30.0, jitter=0.0)
PACE: Final = 1.0  # seconds between two starts of a child, whatever it dies of
_HEALTHY_AFTER: Final = 60.0  # one that ran this long has got over its troubles


class Life(Struct, frozen=True):
    """Life of a child: the seconds it ran, and whether it took any message."""

    seconds: float
    took_messages: bool


class Replacement(Struct, frozen=True):
    """Wait `delay` seconds; `failures` children in a row have died in vain."""

    delay: float
    failures: int


def replace_after(life: Life, failures: int) -> Replacement:
    """Decide when to replace a child, after so many `failures` before it."""
    if life.took_messages:
        return Replacement(max(0.0, PACE - life.seconds), 0)
    failures = 1 if life.seconds >= _HEALTHY_AFTER else failures + 1
    return Replacement(AGAIN.delay(failures, 0.0), failures)


_HURRIED: Final = 5.0  # seconds left to children after the second signal
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
RELOAD: Final = signal.SIGUSR1
"""Asks a supervisor to replace its children, if it takes requests."""


class ChildEnded(Struct, frozen=True):
    """A child is gone; `delay` says when it is replaced, None that it is not."""

    pid: int
    code: int  # exit code, or minus the signal that killed it
    delay: float | None
    is_asked: bool = False  # it ended because it is replaced


class _Place:
    """One of the N processes, whichever child it is at the moment."""

    def __init__(self, number: int, listener: socket.socket | None) -> None:
        self.number = number
        self.listener = listener  # where whichever child it is answers probes
        self.child: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.due = 0.0  # when to start a child, if there is none
        self.failures = 0  # children in a row that died without taking a message
        self.progress: int | None = None  # where the child says that it takes some
        self.replaced_by: float | None = None  # when a child that was told to end is killed

    def took_messages(self) -> bool:
        """Return whether the child that died here had taken any; asked once."""
        if self.progress is None:
            return False
        progress, self.progress = self.progress, None
        try:
            return bool(os.read(progress, 1))
        except OSError:  # it said nothing, and a child of its own could still
            return False
        finally:
            os.close(progress)


def supervise(
    command: Sequence[str],
    *,
    processes: int,
    clock: Clock,
    grace: float = 40.0,
    on_end: Callable[[ChildEnded], None] = lambda ended: None,
    listeners: Sequence[socket.socket] = (),
    final: Collection[int] = (),
    on_request: bool = False,
) -> int:
    """
    Keep `processes` children running until SIGTERM or SIGINT; give the exit code.

    Then children get a SIGTERM, `grace` seconds, and are killed. It is 0 only when
    each of them ended with 0, and 130 when a second signal ended them. Must be called
    in the main thread. `DLQ_PLACE` in a child's environment is its number, from 0; one
    that replaces another has its. Of `listeners`, if there are any, each place has one
    to answer probes on. A child that exits with one of the codes in `final` is not
    replaced: the others are stopped as well, and that is the exit code.

    With `on_request`, `RELOAD` replaces all children: each gets a SIGTERM and `grace` seconds. A
    child that ends before it takes a message, as with a mistake in its code, is then replaced
    at the next request.
    """
    if processes < 1:
        raise ConfigError(f"{processes} processes cannot work: ask for 1 or more")
    places = [
        _Place(number, listeners[number] if listeners else None) for number in range(processes)
    ]
    return _Supervisor(
        command, places, clock, grace, on_end, final=final, on_request=on_request
    ).run()


class _Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        places: Sequence[_Place],
        clock: Clock,
        grace: float,
        on_end: Callable[[ChildEnded], None],
        *,
        final: Collection[int],
        on_request: bool,
    ) -> None:
        self._command = command
        self._clock = clock
        self._grace = grace
        self._on_end = on_end
        self._places = places
        self._final = final
        self._on_request = on_request
        self._is_asked = False  # to replace the children
        self._code: int | None = None  # what a child ended us with
        self._signals = 0
        self._deadline: float | None = None  # set once we are stopping
        self._has_started = False
        self._was_clean = True

    def run(self) -> int:
        lifeline, held_open = os.pipe()
        try:
            signals = (*_SIGNALS, RELOAD) if self._on_request else _SIGNALS
            with _woken_by_signals(self._count, signals) as sleep:
                self._watch(lifeline, sleep)
        finally:
            self._kill()
            os.close(held_open)
            os.close(lifeline)
        if self._code is not None:
            return self._code
        if self._was_clean:
            return 0
        return INTERRUPTED if self._signals > 1 else 1

    def _watch(self, lifeline: int, sleep: Callable[[float | None], None]) -> None:
        told = 0
        while True:
            self._bury_the_dead()
            if self._signals > told:
                told = self._signals
                self._pass_on(told)
            if self._deadline is None:
                self._replace()
                self._start_missing(lifeline)
            elif not any(place.child for place in self._places):
                return
            elif self._clock.monotonic() >= self._deadline:
                self._kill()
                return
            sleep(self._until_next())

    def _count(self, number: int, frame: FrameType | None) -> None:
        if number == RELOAD:
            self._is_asked = True
        elif number != signal.SIGCHLD:
            self._signals += 1

    def _replace(self) -> None:
        """Ask the children to end if they are to be replaced; kill those that do not."""
        now = self._clock.monotonic()
        for place in self._places:
            if place.child is None:
                if self._is_asked:
                    place.due = now
            elif place.replaced_by is None:
                if self._is_asked:
                    place.replaced_by = now + self._grace
                    place.child.terminate()
            elif now >= place.replaced_by:
                with suppress(ProcessLookupError):
                    os.killpg(place.child.pid, signal.SIGKILL)
        self._is_asked = False

    def _start_missing(self, lifeline: int) -> None:
        now = self._clock.monotonic()
        for place in self._places:
            if place.child is not None or place.due > now:
                continue
            place.started = now
            try:
                place.child = self._start(lifeline, place)
            except OSError as error:
                if not self._has_started:
                    raise ConfigError(
                        f"cannot start {self._command[0]}: {error.strerror}"
                    ) from error
                self._put_off(place, now)  # no room for processes, for now
            self._has_started = True

    def _start(self, lifeline: int, place: _Place) -> subprocess.Popen[bytes]:
        place.progress, theirs = os.pipe()
        os.set_blocking(place.progress, False)
        handed_on = {SUPERVISOR_FD: lifeline, PROGRESS_FD: theirs}
        if place.listener is not None:
            handed_on[LISTENER_FD] = place.listener.fileno()
        told = {name: str(number) for name, number in handed_on.items()}
        try:
            return subprocess.Popen(  # noqa: S603 -- the command is our user's own
                self._command,
                stdin=subprocess.DEVNULL,
                pass_fds=tuple(handed_on.values()),
                env={**os.environ, **told, PLACE: str(place.number)},
                # A group of its own: Ctrl-C in a terminal reaches us alone, and the
                # children hear of it once, from us, instead of twice.
                process_group=0,
            )
        finally:
            os.close(theirs)

    def _bury_the_dead(self) -> None:
        now = self._clock.monotonic()
        for place in self._places:
            child = place.child
            if child is None or (code := child.poll()) is None:
                continue
            place.child = None
            delay = None
            is_asked, place.replaced_by = place.replaced_by is not None, None
            if self._deadline is None and is_asked:
                place.took_messages()
                place.due, place.failures, delay = now, 0, 0.0
            elif self._deadline is None and code in self._final:
                self._code = code
                self._pass_on(1)
            elif self._deadline is None:
                delay = self._put_off(place, now)
            elif not self._ended_well(code):
                self._was_clean = False
            with suppress(Exception):  # whatever it does, we go on
                self._on_end(ChildEnded(child.pid, code, delay, is_asked))

    def _put_off(self, place: _Place, now: float) -> float | None:
        life = Life(now - place.started, place.took_messages())
        if self._on_request and not life.took_messages:
            place.due = math.inf
            return None
        replacement = replace_after(life, place.failures)
        place.failures = replacement.failures
        place.due = now + replacement.delay
        return replacement.delay

    def _ended_well(self, code: int) -> bool:
        # One that was still starting has no handler for the signal yet, and
        # nothing in its hands either.
        return code == 0 or (code == -signal.SIGTERM and self._signals == 1)

    def _pass_on(self, signals: int) -> None:
        """Ask the children to stop; a second time, to stop at once."""
        now = self._clock.monotonic()
        if self._deadline is None:
            self._deadline = now + self._grace
            # A child that is not there to be stopped did not end well.
            self._was_clean = all(place.child for place in self._places)
        if signals > 1:
            self._deadline = min(self._deadline, now + _HURRIED)
        for place in self._places:
            if place.child is not None:
                place.child.terminate()

    def _kill(self) -> None:
        for place in self._places:
            child = place.child
            if child is None:
                continue
            self._was_clean = False
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            code = child.wait()
            place.child = None
            place.took_messages()
            with suppress(Exception):
                self._on_end(ChildEnded(child.pid, code, None))

    def _until_next(self) -> float | None:
        """Return the seconds until there is something to do; None when only a signal can tell."""
        now = self._clock.monotonic()
        if self._deadline is not None:
            return max(0.0, self._deadline - now)
        due = [place.due for place in self._places if place.child is None]
        due += [place.replaced_by for place in self._places if place.replaced_by is not None]
        first = min(due, default=math.inf)
        return None if math.isinf(first) else max(0.0, first - now)


@contextmanager
def _woken_by_signals(
    handle: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals]
) -> Iterator[Callable[[float | None], None]]:
    """A sleep that signals end, those too that come just before it."""
    ear, mouth = os.pipe()
    os.set_blocking(ear, False)
    os.set_blocking(mouth, False)
    before = {number: signal.signal(number, handle) for number in heeded(signals)}
    wakeup = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    with selectors.DefaultSelector() as selector:
        selector.register(ear, selectors.EVENT_READ)

        def sleep(seconds: float | None) -> None:
            if selector.select(seconds):
                with suppress(BlockingIOError):
                    os.read(ear, 4096)

        try:
            yield sleep
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(ear)
            os.close(mouth)


PATIENCE: Final = 2.0  # seconds for a child; whoever probes us waits little longer

Gather: TypeAlias = Callable[[Mapping[str, bytes]], bytes]
"""Makes one text for Prometheus of those of several processes, by their number."""
Address: TypeAlias = tuple[str, int]


@contextmanager
def answer_probes(
    processes: int, *, host: str, port: int, depth_threshold: int, gather: Gather
) -> Iterator[Sequence[socket.socket]]:
    """
    Answer probes for so many children, from a thread of its own.

    Gives the sockets they are to answer on, in the order of their places.
    """
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(processes)
        ]
        children = Children([one.getsockname() for one in listeners], gather)
        server = HealthServer(
            children.complaints,
            notes=children.notes,
            host=host,
            port=port,
            depth=children.depth,
            depth_threshold=depth_threshold,
            metrics=children.metrics,
        )
        stack.enter_context(_on_a_thread(server))
        yield listeners


@contextmanager
def _on_a_thread(server: HealthServer) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dlq-health", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Children:
    """The processes at some addresses, asked how they are."""

    def __init__(self, addresses: Sequence[Address], gather: Gather) -> None:
        self._addresses = addresses
        self._gather = gather

    async def complaints(self) -> list[Complaint]:
        """Return why they are not ready, child by child."""
        found: list[Complaint] = []
        for number, answer in enumerate(await self._ask_all("/health/ready")):
            name = f"process {number}"
            if answer is None:
                found.append(Complaint(name, "it does not answer"))
            elif answer[0] != HTTPStatus.OK:
                reasons = msgspec.json.decode(answer[1])["reasons"]
                found += [Complaint(f"{name}, {one['loop']}", one["reason"]) for one in reasons]
        return found

    async def notes(self) -> list[Complaint]:
        """Return what people should know although the processes are ready."""
        answers = enumerate(await self._ask_all("/health/ready"))
        return [
            Complaint(f"process {number}, {one['loop']}", one["reason"])
            for number, answer in answers
            if answer is not None
            for one in msgspec.json.decode(answer[1]).get("notes", ())
        ]

    async def depth(self) -> dict[str, int]:
        """Return how deep the dead-letter mailboxes are, as the first to know says."""
        for address in self._addresses:
            answer = await _ask(address, "/health/dlq")
            if answer is not None and answer[0] == HTTPStatus.OK:
                dlqs: list[dict[str, Any]] = msgspec.json.decode(answer[1])["dlqs"]
                return {dlq["name"]: dlq["depth"] for dlq in dlqs}
        raise Unavailable("no process knows")

    async def metrics(self) -> bytes:
        """Return what those that answer have counted."""
        answers = await self._ask_all("/metrics")
        texts = {
            str(number): answer[1]
            for number, answer in enumerate(answers)
            if answer is not None and answer[0] == HTTPStatus.OK
        }
        if not texts:
            said = [msgspec.json.decode(answer[1]) for answer in answers if answer]
            raise NotFound(said[0]["error"] if said else "no process answers")
        return self._gather(texts)

    async def _ask_all(self, path: str) -> list[tuple[int, bytes] | None]:
        return await asyncio.gather(*(_ask(one, path) for one in self._addresses))


async def _ask(address: Address, path: str) -> tuple[int, bytes] | None:
    """Status and body of an answer; None when there is none in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return int(head.split()[1]), body
    except (OSError, TimeoutError, IndexError, ValueError):
        return None
