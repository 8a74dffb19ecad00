"""
Reports of task queues, filed in the office from whichever process and thread they come.

The office is opened with the first report, in each process anew, so that a worker may be
installed before it forks. A report never raises and never waits longer than its timeout: the
task queue goes on as it would without us. What could not be filed is kept in memory and filed
later; what does not fit there, or is left when the process ends, is lost, and counted.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct, structs

from deadletter.app import App
from deadletter.core.campaign import Outcome
from deadletter.core.errors import BackendError, ConfigError
from deadletter.core.events import FilingFailed, Observer
from deadletter.core.failure.clues import described
from deadletter.core.message import Delivery
from deadletter.core.redact import redact
from deadletter.core.signing import Keys
from deadletter.intake.dialects import Found, letter_of
from deadletter.observe.logs import log_events
from deadletter.ports import Kept, KeyRing, ReplaySettled
from deadletter.runtime.drain_loop import Intake
from deadletter.runtime.settlement import close_stale_letters
from deadletter.sync import SyncApp
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import default_settings, key_ring
from deadletter.wiring.foreign import server_label

TIMEOUT: Final = 10.0
"""Seconds that a report may take."""

_MOST: Final = 1_000  # reports that wait
_BYTES: Final = 32 * 1024 * 1024  # of their bodies
_TRIES: Final = 5  # of a report that fails for another reason than the office's absence
_PAUSE: Final = 1.0  # seconds before the first retry
_LONGEST_PAUSE: Final = 30.0


class Counts(Struct, frozen=True):
    """Reports of one process: what became of them."""

    kept: int = 0  # deaths that are in the office
    confirmed: int = 0  # successes of replayed or redelivered tasks
    waiting: int = 0  # not filed yet
    lost: int = 0


class _Report(Struct, frozen=True):
    found: Found
    is_handled: bool = False
    tries: int = 0
    filed_later: Callable[[], None] = lambda: None

    @property
    def size(self) -> int:
        return len(self.found.body) + len(self.found.raw)


class _Process:
    """The reports of one process; a forked child begins with none."""

    def __init__(self) -> None:
        self.id = os.getpid()
        self.lock = threading.Lock()
        self.counts = Counts()
        self.waiting: deque[_Report] = deque()
        self.size = 0
        self.ring: KeyRing | None = None
        self.thread: threading.Thread | None = None
        self.wake = threading.Event()
        self.is_closed = False


class Reporter:
    """
    Files deaths and successes of one task queue.

    Args:
        office: The URL of the office (default: that of the settings).
        server: Returns the name of the broker in the settings, or its URL.
        timeout: Seconds that a report may take.
        observe: A function that is called with every event (default: they are logged).
        holds: Keep in memory what cannot be filed now; without, its task queue keeps it
            and reports it again.
    """

    def __init__(
        self,
        office: str | None = None,
        *,
        holds: bool = True,
        server: Callable[[], str] = lambda: "",
        timeout: float = TIMEOUT,
        observe: Observer | None = None,
    ) -> None:
        settings = default_settings()
        self._url = office or settings.office or settings.url
        self._timeout = timeout
        self._holds = holds
        self._open()
        self._server = server
        self._clock = SystemClock()
        self._dice = SystemDice()
        self._observe = observe or log_events(self._clock)
        self._process = _Process()

    @property
    def counts(self) -> Counts:
        """What became of the reports of this process."""
        process = self._here()
        with process.lock:
            return structs.replace(process.counts, waiting=len(process.waiting))

    def died(self, found: Found, filed_later: Callable[[], None] = lambda: None) -> bool:
        """
        Keep the letter of a task that failed for good; return whether it is kept now.

        If it is kept later instead, `filed_later` is called then.
        """
        return self._report(_Report(found, filed_later=filed_later))

    def handled(self, found: Found) -> bool:
        """
        Record that a task was handled that may have a letter; return whether that is done.

        The copy of a replay is confirmed. The letter of a task that was delivered again,
        because its worker died after keeping the letter, is closed.
        """
        return self._report(_Report(found, is_handled=True))

    def rest(self) -> None:
        """Close the office until the next report, so that no thread of ours is forked."""
        process = self._here()
        if process.ring is not None:
            process.ring = None
            with suppress(Exception):  # whatever it says, nothing of it is used again
                self._sync.close()
            self._open()

    def keys(self) -> Keys | None:
        """Return the signing keys of the office; None while it cannot be reached."""
        process = self._here()
        if process.waiting:
            return None  # no task has to wait once more
        try:
            return self._sync.call(self._keys(process))
        except Exception:  # noqa: BLE001 -- nothing may stop the task
            return None

    def close(self) -> None:
        """
        Try to file what waits, count the rest as lost, and close the office.

        A later report opens it again: workers may be started anew in one process.
        """
        process = self._here()
        with process.lock:
            process.is_closed = True
        process.wake.set()
        thread = process.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._sync.timeout)
        with process.lock:
            left = list(process.waiting)
            process.waiting.clear()
        for report in left:
            self._lose(process, report, "the process ended before the office was reachable")
        self.rest()
        with process.lock:
            process.size, process.is_closed = 0, False
        process.wake.clear()

    def _open(self) -> None:
        self._app = App(self._url)
        self._sync = SyncApp(self._app, timeout=self._timeout)

    def _here(self) -> _Process:
        """Return the reports of this process."""
        if self._process.id != os.getpid():
            self._process = _Process()
        return self._process

    def _report(self, report: _Report) -> bool:
        process = self._here()
        if process.waiting:  # no task has to wait until an office is unreachable once more
            self._put_off(process, report, "the office is unreachable")
            return False
        try:
            return self._file(process, report)
        except (ConfigError, BackendError) as error:
            self._put_off(process, report, described(error))
        except Exception as error:  # noqa: BLE001 -- nothing may stop the task
            self._put_off(process, structs.replace(report, tries=1), described(error))
        return False

    def _file(self, process: _Process, report: _Report) -> bool:
        """File a report; return whether that was possible, or raise if it may be later."""
        if report.is_handled:
            self._sync.call(self._confirm(process, report.found))
            self._count(process, "confirmed")
            return True
        kept = self._sync.call(self._keep(process, report.found))
        if kept is None:  # the office refused it, and would again
            self._count(process, "lost")
            return False
        self._count(process, "kept")
        return True

    async def _keep(self, process: _Process, found: Found) -> Kept | None:
        letters = await self._app.letters()
        intake = Intake(
            drain=_Caught(found),
            letters=letters,
            clock=self._clock,
            dice=self._dice,
            observe=self._observe,
            ring=await self._ring(process),
            server=self._server(),
        )
        try:
            (taken,) = await intake.once(1)
        finally:
            await intake.end()
        return taken.kept

    async def _confirm(self, process: _Process, found: Found) -> None:
        letters, keys = await self._app.letters(), await self._keys(process)
        letter = letter_of(found, self._clock.now(), keys, server=self._server())
        lineage = letter.message.lineage
        if lineage is not None:
            copy = ReplaySettled(lineage.letter_id, lineage.generation, Outcome.CONFIRMED)
            await letters.settle_replays([copy])
        delivery = Delivery(message=letter.message, mailbox=letter.head.source)
        await close_stale_letters(letters, [delivery])

    async def _ring(self, process: _Process) -> KeyRing:
        if process.ring is None:
            process.ring = key_ring(await self._app.letters())
        return process.ring

    async def _keys(self, process: _Process) -> Keys:
        return await (await self._ring(process)).keys()

    def _put_off(self, process: _Process, report: _Report, why: str) -> None:
        """Keep a report for later, and start the thread that files it."""
        if not self._holds:
            self._tell(report, why, waits=True)
            return
        with process.lock:
            has_room = len(process.waiting) < _MOST and process.size + report.size <= _BYTES
            if has_room and not process.is_closed:
                process.waiting.append(report)
                process.size += report.size
                if process.thread is None:
                    process.thread = threading.Thread(
                        target=self._file_later,
                        args=(process,),
                        name="deadletter-reports",
                        daemon=True,
                    )
                    process.thread.start()
                is_waiting = True
            else:
                is_waiting = False
        if is_waiting:
            self._tell(report, why, waits=True)
        else:
            self._lose(process, report, why)

    def _file_later(self, process: _Process) -> None:
        """File what waits, oldest first, until nothing does."""
        pause = _PAUSE
        while True:
            process.wake.wait(pause)
            with process.lock:
                if not process.waiting:
                    process.thread = None
                    return
                report = process.waiting[0]
            is_gone, is_filed = self._try_again(process, report)
            if is_gone:
                with process.lock:
                    process.waiting.popleft()
                    process.size -= report.size
            pause = 0.0 if is_filed else min(max(pause, _PAUSE) * 2, _LONGEST_PAUSE)
            if process.is_closed and not is_filed:
                return

    def _try_again(self, process: _Process, report: _Report) -> tuple[bool, bool]:
        """Return whether a report need not be tried again, and whether the office answered."""
        try:
            if self._file(process, report):
                report.filed_later()
        except (ConfigError, BackendError):
            return False, False
        except Exception as error:  # noqa: BLE001 -- one report must not block the others
            if report.tries < _TRIES:
                with process.lock:
                    process.waiting[0] = structs.replace(report, tries=report.tries + 1)
                return False, False
            self._lose(process, report, described(error))
        return True, True

    def _count(self, process: _Process, what: str) -> None:
        with process.lock:
            more = {what: getattr(process.counts, what) + 1}
            process.counts = structs.replace(process.counts, **more)

    def _lose(self, process: _Process, report: _Report, why: str) -> None:
        self._count(process, "lost")
        self._tell(report, why, waits=False)

    def _tell(self, report: _Report, why: str, *, waits: bool) -> None:
        found = report.found
        event = FilingFailed(
            mailbox=found.source or found.place,
            message_id=found.id,
            what="success" if report.is_handled else "death",
            text=redact(why),
            waits=waits,
        )
        with suppress(Exception):  # an observer may do anything, and stops no task
            self._observe(event)


def redis_label(client: Any) -> str:
    """Return the URL of a Redis client without its secrets; empty if it has no host."""
    told = client.connection_pool.connection_kwargs
    if "host" not in told:
        return ""
    return server_label(f"redis://{told['host']}:{told.get('port', 6379)}/{told.get('db', 0)}")


class _Caught:
    """A failure in the hands of a worker, as a dead place that holds nothing else."""

    def __init__(self, found: Found) -> None:
        self.place = found.place
        self._found = found

    async def depth(self) -> int:
        """Return 1: the failure."""
        return 1

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Return the failure."""
        return (self._found,)

    async def forget(self, found: Sequence[Found]) -> None:
        """Do nothing: its task queue removes it."""

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Do nothing: it is in the hands of its task queue."""

    async def close(self) -> None:
        """Do nothing."""
