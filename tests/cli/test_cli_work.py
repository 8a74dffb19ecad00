"""dlq work: a real worker process on a real file."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.conftest import Command
from deadletter.core.letter import State

pytestmark = pytest.mark.slow

SHOP = """
from deadletter.app import App
from deadletter.core.backoff import Fixed
from deadletter.core.policy import DLQPolicy

app = App(version="1.8")

@app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=Fixed(0.01)))
async def charge(order: dict) -> None:
    if order["id"] % 2:
        raise TimeoutError("the bank did not answer")
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "not within 30 seconds"
        time.sleep(0.05)


@pytest.fixture
def start(dlq: Command, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    (tmp_path / "shop.py").write_text(SHOP)
    started: list[subprocess.Popen[str]] = []

    def starting(
        *words: str, err: int = subprocess.PIPE, path: Path | None = None
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "deadletter.cli", "work", *words],
            env=os.environ | ({"PYTHONPATH": str(path)} if path else {}),
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        started.append(process)
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def letters(dlq: Command, state: State = State.PENDING) -> Any:
    query = f"is:{state}"
    return dlq("list", query, "--json").documents


def test_a_worker_buries_and_a_replay_is_confirmed(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for number in range(4):
        dlq("send", "orders", json.dumps({"id": number}))
    worker = start("shop:app")
    until(lambda: len(letters(dlq)) == 2)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "buried" in err
    assert "succeeded" not in err

    (tmp_path / "shop.py").write_text(SHOP.replace('order["id"] % 2', "False"))
    fixed = start("shop:app", "--json", "--verbose")
    ran = dlq("replay", "is:pending", "--wait", "30", "--json")
    fixed.send_signal(signal.SIGINT)
    out, _ = fixed.communicate(timeout=30)

    assert ran.document["state"] == "done"
    assert ran.document["counts"] == {"confirmed": 2}
    assert len(letters(dlq, State.REPLAYED)) == 2
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events.count("succeeded") == 2
    assert dlq("verify").code == 0


TWO = (
    SHOP
    + """
@app.handler("mails")
async def mail(body: bytes) -> None: ...
"""
)
FAILING = (
    SHOP
    + """
@app.on_startup
def connect() -> None:
    raise OSError("no bank")
"""
)


@pytest.mark.parametrize("more", [[], ["--processes", "2"]])
def test_some_mailboxes_are_worked(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, more: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(TWO)
    dlq("send", "orders", json.dumps({"id": 1}))
    dlq("send", "mails", "hello")
    worker = start("shop:app", "--only", "orders, ", *more)
    until(lambda: len(letters(dlq)) == 1)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 0
    assert "mailbox=mails" not in err
    waiting = {
        one["options"]["name"]: one["ready"] for one in dlq("queues", "list", "--json").documents
    }
    assert waiting == {"orders": 0, "mails": 1}


def test_several_processes_run_under_a_supervisor(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for number in range(6):
        dlq("send", "orders", json.dumps({"id": number}))
    log = tmp_path / "err"

    with log.open("wb") as err:
        supervisor = start("shop:app", "--processes", "2", err=err.fileno())
    until(lambda: log.read_text().count("worker-started") == 2)
    until(lambda: len(letters(dlq)) == 3)
    supervisor.send_signal(signal.SIGTERM)
    supervisor.communicate(timeout=30)

    assert supervisor.returncode == 0
    assert log.read_text().count(" ended") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the App to run"),
        (["nowhere:app"], "there is no module 'nowhere'"),
        (["shop:thing"], "has no App named 'thing'"),
        (["broken:app"], "broken.py, line 2: ZeroDivisionError: division by zero"),
        (["shop:app", "--only", "mails"], "no handler is registered for mails"),
        (["shop:app", "--only", "mails", "-p", "2"], "no handler is registered for mails"),
        (["failing:app"], "start-up hook connect failed with OSError: no bank"),
    ],
)
def test_an_app_that_cannot_run_is_explained_in_one_sentence(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    process = start(*words)

    _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert said in err
    assert "report it" not in err
    assert "Traceback" not in err


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body of an answer; status 0 without an answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def children(parent: int) -> list[int]:
    """Return the child processes of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone meanwhile
            if stat.read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(int(stat.parent.name))
    return found


def samples(port: int, name: str) -> dict[str, float]:
    """Return the samples of a metric, by their labels."""
    _, text = get(port, "/metrics")
    return {
        ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_a_worker_shows_what_it_counted_on_its_health_port(
    dlq: Command, start: Callable[..., subprocess.Popen[str]]
) -> None:
    port = free_port()
    for number in range(4):
        dlq("send", "orders", json.dumps({"id": number}))

    worker = start("shop:app", "--health-port", str(port))
    until(lambda: len(letters(dlq)) == 2)
    until(lambda: sum(samples(port, "dlq_messages_sent_total").values()) == 2)

    assert samples(port, "dlq_messages_dead_lettered_total") == {
        "consumer=charge,error_type=TimeoutError,reason=attempts-exhausted,source=orders": 2
    }
    assert samples(port, "dlq_attempts_total") == {
        "mailbox=orders,outcome=buried": 2,
        "mailbox=orders,outcome=retried": 2,
        "mailbox=orders,outcome=succeeded": 2,
    }
    assert samples(port, "dlq_handler_duration_seconds_count") == {
        "mailbox=orders,outcome=buried": 2,
        "mailbox=orders,outcome=retried": 2,
        "mailbox=orders,outcome=succeeded": 2,
    }
    assert samples(port, "pipestream_dlq_messages_total") == {"node_id=orders": 2}
    status, body = get(port, "/health/dlq")
    assert (status, json.loads(body)["dlq"]["depth"]) == (200, 2)
    worker.terminate()
    worker.communicate(timeout=30)
    assert worker.returncode == 0


def test_how_deep_is_too_deep_is_a_setting(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_DEPTH_THRESHOLD", "1")
    port = free_port()
    dlq("send", "orders", json.dumps({"id": 1}))
    start("shop:app", "--health-port", str(port))

    until(lambda: json.loads(get(port, "/health/dlq")[1] or "{}").get("dlq"))

    assert json.loads(get(port, "/health/dlq")[1])["status"] == "degraded"


def test_without_a_counter_both_the_start_and_the_answer_say_what_to_install(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = free_port()
    hidden = "import sys; sys.modules['prometheus_client'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    worker = start("shop:app", "--health-port", str(port), path=tmp_path)
    until(lambda: get(port, "/health/ready")[0] == 200)

    answer = get(port, "/metrics")
    worker.terminate()
    _, err = worker.communicate(timeout=30)

    assert answer[0] == 404
    assert "pip install 'deadletter[metrics]'" in answer[1]
    assert err.count("pip install 'deadletter[metrics]'") == 1


def test_a_supervisor_answers_for_its_children(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = free_port()
    log = tmp_path / "err"
    with log.open("wb") as err:
        supervisor = start(
            *("shop:app", "--processes", "2", "--health-port", str(port)), err=err.fileno()
        )
    until(lambda: get(port, "/health/live")[0] == 200)
    until(lambda: get(port, "/health/ready")[0] == 200)
    for number in range(20):
        dlq("send", "orders", json.dumps({"id": number}))
    until(lambda: sum(samples(port, "dlq_messages_sent_total").values()) == 10)

    told = samples(port, "dlq_messages_received_total")
    assert set(told) <= {f"mailbox=orders,process={n}" for n in range(2)}
    status, body = get(port, "/health/dlq")
    assert (status, json.loads(body)["dlq"]["depth"]) == (200, 10)
    first, *_ = children(supervisor.pid)
    os.kill(first, signal.SIGKILL)
    until(lambda: log.read_text().count("worker-started") == 3)
    until(lambda: get(port, "/health/ready")[0] == 200)  # another is in its place
    supervisor.terminate()
    supervisor.communicate(timeout=30)
    assert supervisor.returncode == 0
    assert get(port, "/health/live")[0] == 0


def test_a_port_that_is_taken_is_said_by_the_supervisor(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = start("shop:app", "-p", "2", "--health-port", port)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert f"cannot answer health checks on 127.0.0.1:{port}" in err


SLOW = """
import asyncio, time
from deadletter.app import App

app = App()

@app.handler("orders")
async def charge(order: dict) -> None:
    print("charging", flush=True)
    await asyncio.sleep(60)

@app.handler("mails")
def mail(order: dict) -> None:
    print("mailing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("mailbox", ["orders", "mails"])
@pytest.mark.parametrize("count", ["1", "2"])
def test_the_second_interrupt_does_not_wait_and_is_exit_code_130(
    dlq: Command,
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    mailbox: str,
    count: str,
) -> None:
    (tmp_path / "shop.py").write_text(SLOW)
    dlq("send", mailbox, "{}")
    worker = start("shop:app", "--processes", count)
    assert worker.stdout is not None
    worker.stdout.readline()

    worker.send_signal(signal.SIGINT)
    time.sleep(0.5)  # two at the same moment would count as one
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 130, err
    assert "Traceback" not in err


@pytest.mark.parametrize("count", ["1", "2"])
def test_workers_end_when_their_database_is_removed(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path, count: str
) -> None:
    dlq("send", "orders", json.dumps({"id": 0}))
    file, log = tmp_path / "office.db", tmp_path / "err"
    with log.open("wb") as err:
        worker = start("shop:app", "--processes", count, err=err.fileno())
    until(lambda: log.read_text().count("worker-started") == int(count))
    for one in tmp_path.glob("office.db*"):
        one.unlink()

    worker.communicate(timeout=30)

    assert worker.returncode == 7
    assert "office.db was removed or moved while this process used it" in (log.read_text())
    assert not file.exists()


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_worker_in_the_background_of_a_script_leaves_interrupts_to_others(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], count: str
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as such a shell does
    try:
        worker = start("shop:app", "--processes", count)
    finally:
        signal.signal(signal.SIGINT, before)
    assert worker.stderr is not None
    worker.stderr.readline()

    worker.send_signal(signal.SIGINT)
    dlq("send", "orders", json.dumps({"id": 1}))
    until(lambda: len(letters(dlq)) == 1)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 0, err


def test_a_handler_that_never_ends_does_not_keep_a_worker_without_database(
    dlq: Command, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        "import time\nfrom deadletter.app import App\n"
        "app = App()\n"
        "@app.handler('orders')\n"
        "def charge(order: dict) -> None:\n"
        f"    open({str(tmp_path / 'begun')!r}, 'w').close()\n"
        "    time.sleep(600)\n"
    )
    dlq("send", "orders", json.dumps({"id": 0}))
    worker = start("shop:app")
    until((tmp_path / "begun").exists)
    (tmp_path / "office.db").unlink()

    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 7
    assert "office.db was removed or moved" in err
    assert dlq("send", "orders", "{}").code == 2  # its log is there: nothing is begun
