"""A stuck process ends itself; one that is not, does not."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from threading import Event as ThreadEvent

import pytest

from deadletter.core.events import Event, Stalled
from deadletter.runtime.watchdog import Pulse, Watchdog
from deadletter.testing.fakes import FakeClock


class Rig:
    """A watchdog whose bite only leaves a mark."""

    def __init__(self, *, observe: Callable[[Event], None] | None = None) -> None:
        self.clock = FakeClock()
        self.pulses: list[Pulse] = []
        self.events: list[Event] = []
        self.bitten = ThreadEvent()
        self.watchdog = Watchdog(
            lambda: self.pulses,
            threshold=720.0,
            interval=0.001,
            clock=self.clock,
            observe=observe or self.events.append,
            kill=self.bitten.set,
        )


def test_a_heart_that_beats_is_left_alone() -> None:
    rig = Rig()
    rig.pulses = [Pulse("worker orders", 720.0)]

    rig.watchdog.check()

    assert not rig.bitten.is_set()
    assert rig.events == []


def test_a_heart_that_stands_still_kills_and_says_so_first() -> None:
    rig = Rig()
    rig.pulses = [Pulse("worker orders", 3.0), Pulse("sweep", 720.5)]

    rig.watchdog.check()

    assert rig.bitten.is_set()
    assert rig.events == [Stalled(mailbox="", loop="sweep", seconds=720.5)]


def test_an_observer_that_fails_does_not_save_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda args: None)

    def fail(event: Event) -> None:
        raise RuntimeError("cannot tell")

    rig = Rig(observe=fail)
    rig.pulses = [Pulse("sweep", 721.0)]

    rig.watchdog.check()

    assert rig.bitten.is_set()


def test_an_observer_that_hangs_does_not_save_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.runtime.watchdog._LAST_WORDS", 0.01)
    released = ThreadEvent()

    def hang(event: Event) -> None:
        released.wait(5.0)

    rig = Rig(observe=hang)
    rig.pulses = [Pulse("sweep", 721.0)]

    rig.watchdog.check()

    assert rig.bitten.is_set()
    released.set()


def test_the_watchdog_runs_in_a_thread_until_stopped() -> None:
    rig = Rig()
    rig.pulses = [Pulse("sweep", 721.0)]

    rig.watchdog.start()

    assert rig.bitten.wait(5.0)
    rig.watchdog.stop()


class PausedClock(FakeClock):
    """Jumps once, as a clock does for a process that was stopped for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0  # at the clock, since the pause

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + (1000.0 if self.looks > 3 else 0.0)


def test_a_process_that_was_paused_gets_time_to_beat_again() -> None:
    clock = PausedClock()
    bitten, enough = ThreadEvent(), ThreadEvent()

    def pulses() -> list[Pulse]:
        # Right after the pause nobody has had the time to beat, a look later all.
        if clock.looks > 8:
            enough.set()
        return [Pulse("sweep", 1000.0)] if clock.looks == 4 else []

    watchdog = Watchdog(
        pulses,
        threshold=720.0,
        interval=0.001,
        clock=clock,
        observe=lambda event: None,
        kill=bitten.set,
    )

    watchdog.start()
    assert enough.wait(5.0)
    watchdog.stop()

    assert not bitten.is_set()


STUCK = """
    import asyncio, re, sys, time
    from deadletter.core.events import Stalled
    from deadletter.runtime.loop_group import LoopGroup
    from deadletter.runtime.deliveries import Heartbeat
    from deadletter.system import SystemClock

    clock = SystemClock()

    class Consumer:
        name = "worker orders"
        heartbeat = Heartbeat(clock)

        async def run(self, stop):
            for _ in range(5):
                self.heartbeat.beat()
                await asyncio.sleep(0.02)
            print("blocking", flush=True)
            {blocking}

        def ready(self):
            return None

    def observe(event):
        if isinstance(event, Stalled):
            print("stalled", event.loop, flush=True)

    group = LoopGroup(
        [Consumer()], clock=clock, observe=observe,
        watchdog_threshold={threshold}, watchdog_interval=0.05,
    )
    asyncio.run(group.run())
"""


FILL = """
def _fill():
    import os
    try:
        while True:
            os.write(2, b"x")
    except BlockingIOError:
        pass
"""


def run_stuck(blocking: str, threshold: float) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(STUCK).format(blocking=blocking, threshold=threshold)
    return subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )


def test_an_event_loop_blocked_by_a_handler_ends_its_process() -> None:
    ended = run_stuck("time.sleep(60)", threshold=0.5)

    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.splitlines() == ["blocking", "stalled worker orders"]


def test_code_that_never_lets_go_of_the_interpreter_ends_its_process_too() -> None:
    # A pattern that backtracks for years, in C, holding the interpreter lock.
    ended = run_stuck("re.match('(a+)+$', 'a' * 60 + 'b')", threshold=0.5)

    assert ended.returncode == 1
    assert ended.stdout.splitlines() == ["blocking"]
    assert "Timeout" in ended.stderr  # and the stacks, so that somebody can see why


def test_a_log_that_nobody_reads_does_not_save_the_process() -> None:
    fill = "import os; os.set_blocking(2, False); _fill(); os.set_blocking(2, True); "
    script = textwrap.dedent(STUCK).format(
        blocking=fill + "re.match('(a+)+$', 'a' * 60 + 'b')", threshold=0.5
    )
    with subprocess.Popen(
        [sys.executable, "-c", FILL + script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.wait(60) == 1
        finally:
            process.kill()
