"""Real processes under a real supervisor."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadletter.core.errors import ConfigError
from deadletter.runtime.lifeline import SUPERVISOR_FD, end_with_supervisor
from deadletter.runtime.supervisor import supervise
from deadletter.system import SystemClock

pytestmark = pytest.mark.slow

SUPERVISOR = """
    import sys
    from deadletter.runtime.supervisor import supervise
    from deadletter.system import SystemClock

    def tell(ended):
        print("ended", ended.pid, ended.code, ended.delay, flush=True)

    sys.exit(supervise(
        [sys.executable, "-c", sys.argv[1]], processes=int(sys.argv[2]),
        clock=SystemClock(), grace=float(sys.argv[3]), on_end=tell,
    ))
"""
CHILD = """
    import os, signal, sys, time
    from deadletter.runtime.lifeline import end_with_supervisor

    class Stop:  # a threading.Event would wait for itself in a signal handler
        reader, writer = os.pipe()
        def set(self, *_):
            os.write(self.writer, b".")
        def wait(self):
            os.read(self.reader, 100)

    stop = Stop()
    signal.signal(signal.SIGTERM, stop.set)
    {arrangement}
    open({folder!r} + "/" + str(os.getpid()), "w").write(os.environ["DLQ_PLACE"])
    {body}
"""
WELL = "end_with_supervisor(stop.set)"


class Rig:
    """A supervisor in a process of its own, whose children sign a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.supervisor: subprocess.Popen[str] | None = None

    def start(
        self,
        body: str = "stop.wait()",
        *,
        arrangement: str = WELL,
        processes: int = 2,
        grace: float = 10.0,
    ) -> subprocess.Popen[str]:
        child = textwrap.dedent(CHILD).format(
            folder=str(self.folder), body=body, arrangement=arrangement
        )
        script = textwrap.dedent(SUPERVISOR)
        self.supervisor = subprocess.Popen(
            [sys.executable, "-c", script, child, str(processes), str(grace)],
            stdout=subprocess.PIPE,
            text=True,
        )
        return self.supervisor

    def children(self, count: int) -> list[int]:
        """The process ids of so many children that have come up."""
        until(lambda: len(self.signed()) >= count)
        return sorted(self.signed())

    def signed(self) -> list[int]:
        return [int(p.name) for p in self.folder.iterdir() if p.read_text()]

    def ended(self) -> list[list[str]]:
        assert self.supervisor is not None
        assert self.supervisor.stdout is not None
        lines = self.supervisor.stdout.read().splitlines()
        return [line.split()[1:] for line in lines]


def until(condition: Callable[[], object], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    folder = tmp_path / "children"
    folder.mkdir()
    rig = Rig(folder)
    yield rig
    supervisor = rig.supervisor
    if supervisor is not None:
        supervisor.kill()
        supervisor.wait()
        assert supervisor.stdout is not None
        supervisor.stdout.close()
    for pid in rig.signed():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_the_supervisor_runs_the_requested_processes_and_stops_them_cleanly(rig: Rig) -> None:
    supervisor = rig.start(processes=3)
    children = rig.children(3)
    places = {(rig.folder / str(pid)).read_text() for pid in children}

    supervisor.terminate()

    assert supervisor.wait(10.0) == 0
    assert places == {"0", "1", "2"}
    assert not any(is_alive(pid) for pid in children)
    assert [code for _, code, _ in rig.ended()] == ["0", "0", "0"]


def test_a_killed_child_is_replaced_and_the_other_left_alone(rig: Rig) -> None:
    supervisor = rig.start()
    first, second = rig.children(2)

    os.kill(first, signal.SIGKILL)
    children = rig.children(3)

    assert is_alive(second)
    assert sum(is_alive(pid) for pid in children) == 2
    [new] = set(children) - {first, second}
    assert (rig.folder / str(new)).read_text() == (rig.folder / str(first)).read_text()
    supervisor.terminate()
    assert supervisor.wait(10.0) == 0
    assert [str(first), "-9", "0.5"] in rig.ended()


def test_children_that_keep_dying_are_started_ever_more_slowly(rig: Rig) -> None:
    supervisor = rig.start("os._exit(3)", processes=1)
    rig.children(3)
    supervisor.terminate()

    assert supervisor.wait(10.0) == 1  # one that is not there has not ended well
    ended = rig.ended()
    assert [(code, delay) for _, code, delay in ended[:2]] == [("3", "0.5"), ("3", "1.0")]


def test_children_that_take_messages_and_die_are_replaced_at_once(rig: Rig) -> None:
    body = """
    from deadletter.core.events import Received
    from deadletter.runtime.lifeline import progress_observers
    time.sleep(1.0)
    (observe,) = progress_observers()
    for _ in range(3):
        observe(Received(mailbox="orders", count=1))
    os._exit(9)
"""
    supervisor = rig.start(body.strip().replace("\n    ", "\n"), processes=1)
    rig.children(4)
    supervisor.terminate()
    supervisor.wait(10.0)

    delays = [delay for _, code, delay in rig.ended() if code == "9"]
    assert delays[:3] == ["0.0", "0.0", "0.0"]


def test_a_child_that_does_not_stop_is_killed_after_the_grace(rig: Rig) -> None:
    supervisor = rig.start("time.sleep(60); time.sleep(60)", processes=1, grace=0.3)
    [child] = rig.children(1)

    supervisor.terminate()

    assert supervisor.wait(10.0) == 1
    assert not is_alive(child)
    assert [code for _, code, _ in rig.ended()] == ["-9"]


def test_a_child_that_stops_badly_makes_it_a_bad_end(rig: Rig) -> None:
    supervisor = rig.start("stop.wait(); sys.exit(4)", processes=1)
    rig.children(1)

    supervisor.terminate()

    assert supervisor.wait(10.0) == 1


def test_the_second_signal_hurries(rig: Rig) -> None:
    body = "stop.wait(); stop.wait(); sys.exit(1)"
    supervisor = rig.start(body, processes=1, grace=60.0)
    rig.children(1)
    supervisor.terminate()
    time.sleep(0.3)  # signals that are pending together are one

    supervisor.send_signal(signal.SIGINT)

    assert supervisor.wait(10.0) == 130


def test_a_terminals_interrupt_reaches_the_supervisor_alone(rig: Rig) -> None:
    supervisor = rig.start()
    children = rig.children(2)

    assert all(os.getpgid(pid) == pid for pid in children)
    assert os.getpgid(supervisor.pid) not in children
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(10.0) == 0


def test_children_end_with_a_supervisor_that_is_killed(rig: Rig) -> None:
    supervisor = rig.start()
    children = rig.children(2)

    supervisor.kill()

    until(lambda: not any(is_alive(pid) for pid in children))


GROUP = """
    import asyncio
    from deadletter.runtime.loop_group import LoopGroup
    from deadletter.runtime.deliveries import Heartbeat
    from deadletter.system import SystemClock
    class Waiting:
        name, heartbeat = "waiting", Heartbeat(SystemClock())
        async def run(self, stop):
            open({note!r}, "a").write("running ")
            await stop.wait()
            open({note!r}, "a").write("stopped ")
        def ready(self):
            return None
    group = LoopGroup([Waiting()], clock=SystemClock(), observe=print)
    sys.exit(asyncio.run(group.run()))
"""


def test_a_group_of_loops_stops_when_its_supervisor_is_killed(rig: Rig, tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.touch()
    body = textwrap.dedent(GROUP).format(note=str(note))
    supervisor = rig.start(body, arrangement="pass")
    children = rig.children(2)
    until(lambda: note.read_text() == "running running ")

    supervisor.kill()

    until(lambda: not any(is_alive(pid) for pid in children))
    assert note.read_text().count("stopped ") == 2


@pytest.mark.parametrize("channel", ["pipe", "kernel"])
def test_either_way_of_noticing_is_enough(rig: Rig, channel: str) -> None:
    broken = {
        "pipe": "import deadletter.runtime.lifeline as l; "
        "l.signal_when_orphaned = lambda number: None; ",
        "kernel": "import deadletter.runtime.lifeline as l; l._watch = lambda *_: None; ",
    }
    supervisor = rig.start(arrangement=broken[channel] + WELL)
    children = rig.children(2)

    supervisor.kill()

    until(lambda: not any(is_alive(pid) for pid in children))


def test_a_child_that_ignores_the_end_of_its_supervisor_is_killed(rig: Rig) -> None:
    arrangement = "end_with_supervisor(lambda: None, grace=0.2)"
    supervisor = rig.start("time.sleep(60); time.sleep(60)", arrangement=arrangement)
    children = rig.children(2)

    supervisor.kill()

    until(lambda: not any(is_alive(pid) for pid in children))


def test_processes_that_cannot_start_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match="cannot start /no/such/thing"):
        supervise(["/no/such/thing"], processes=2, clock=SystemClock())


def test_no_processes_are_no_good() -> None:
    with pytest.raises(ConfigError, match="ask for 1 or more"):
        supervise(["true"], processes=0, clock=SystemClock())


@pytest.mark.parametrize("text", [None, "", "x", "-1", "999999", "²"])
def test_without_a_supervisor_nothing_is_watched(
    text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is None:
        monkeypatch.delenv(SUPERVISOR_FD, raising=False)
    else:
        monkeypatch.setenv(SUPERVISOR_FD, text)

    assert end_with_supervisor(lambda: None) is False


def test_a_descriptor_that_is_no_pipe_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setenv(SUPERVISOR_FD, str(file.fileno()))

        assert end_with_supervisor(lambda: None) is False


def test_the_childrens_children_are_not_supervised_by_mistake(rig: Rig) -> None:
    body = f"sys.exit({SUPERVISOR_FD!r} in os.environ and 9)"
    supervisor = rig.start(body, processes=1)
    rig.children(2)  # the first one has ended by itself
    supervisor.terminate()
    supervisor.wait(10.0)

    assert rig.ended()[0][1] == "0"
