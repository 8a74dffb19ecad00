"""dlq produce, lease, complete, retry and queues lent: clients of the queue server."""

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command, RemoteCommand
from deadletter.queue_server import queue_commands as lent

pytestmark = pytest.mark.slow


@pytest.fixture
def jobs(remote: RemoteCommand) -> RemoteCommand:
    """Create a queue with two waiting items, a leased one and a scheduled one."""
    remote("queues", "lent", "create", "jobs")
    for name in ("one", "two", "three"):
        remote("produce", "jobs", name)
    remote("produce", "jobs", "later", "--delay", "600")
    remote("lease", "jobs")
    return remote


def counted(remote: RemoteCommand) -> tuple[int, int, int]:
    """Return the numbers of waiting, leased and scheduled items."""
    (found,) = remote("queues", "lent", "stats", "jobs", "--json").documents
    return found["total"] - found["leased"], found["leased"], found["scheduled"]


def test_items_go_through_the_queue_server(remote: RemoteCommand) -> None:
    assert remote("queues", "lent", "create", "dead").code == 0
    made = remote(
        *("queues", "lent", "create", "jobs", "--lease", "30s", "--expire", "1h"),
        *("--dead-queue", "dead", "--max-attempts", "3"),
    )
    assert made.out == "Created queue jobs.\n"
    assert remote("produce", "jobs", "one", "--reference", "r-1").code == 0
    assert remote("produce", "jobs", "two").code == 0

    lent = remote("--json", "lease", "jobs", "-n", "2").documents
    first, second = (one["item"]["id"] for one in lent)
    assert remote("complete", "jobs", first).out == "1 item completed.\n"
    assert remote("retry", "jobs", second).out == "1 item returned.\n"
    again = remote("--json", "lease", "jobs").document["item"]
    assert (again["attempts"], again["bytes"]) == (2, "dHdv")
    assert remote("retry", "jobs", again["id"], "--dead").out == "1 item declared dead.\n"

    seen = remote("queues", "lent", "items", "dead").out
    assert "two" in seen
    assert again["id"] in seen
    stored = remote("--json", "queues", "lent", "items", "dead").document
    assert (stored["source_id"], stored["is_leased"]) == (again["id"], False)
    page = remote("lease", "dead").out
    assert "two" in page
    assert "No items are in partition 0" in remote("queues", "lent", "items", "jobs").out
    assert "Nothing to lease" in remote("lease", "jobs", "--wait", "0.05").out
    assert remote("complete", "jobs", "unknown").code == 2
    assert remote("complete", "jobs").code == 2


def test_all_queues_to_lease_from_are_listed(
    remote: RemoteCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lent.one_by_one, "__kwdefaults__", {"size": 2})
    for number in range(5):
        remote("queues", "lent", "create", f"jobs-{number}")

    listed = remote("queues", "lent", "--json").documents

    assert [one["name"] for one in listed] == [f"jobs-{number}" for number in range(5)]


def test_queues_to_lease_from_are_listed_changed_and_deleted(remote: RemoteCommand) -> None:
    assert "no queues yet" in remote("queues", "lent").out
    remote("queues", "lent", "create", "dead")
    remote("queues", "lent", "create", "jobs", "--dead-queue", "dead")

    assert remote("queues", "lent", "update", "jobs", "--lease", "5m").code == 0
    listed = remote("queues", "lent", "list").out
    assert "5m" in listed
    assert "dead" in listed
    refused = remote("queues", "lent", "delete", "dead", "--yes")
    assert refused.code in {2, 4}
    assert remote("queues", "lent", "update", "jobs", "--no-dead-queue").code == 0
    assert remote("queues", "lent", "delete", "dead", "--yes").code == 0
    assert "30s, 5m" in remote("queues", "lent", "create", "x", "--lease", "soon").err


def test_without_a_server_the_one_here_is_asked(dlq: Command, server: Any, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    (tmp_path / "deadletter.toml").write_text(f"[serve]\nport = {port}\n")

    assert dlq("queues", "lent", "create", "jobs").code == 0
    assert dlq("produce", "jobs", "-f", "deadletter.toml").code == 0


def test_items_of_a_queue_are_counted(jobs: RemoteCommand) -> None:
    ran = jobs("queues", "lent", "stats", "jobs")
    header, row = (line.split() for line in ran.out.splitlines())

    assert header[:4] == ["partition", "waiting", "leased", "scheduled"]
    assert row[:4] == ["0", "2", "1", "1"]
    assert counted(jobs) == (2, 1, 1)
    assert jobs("queues", "lent", "stats", "nowhere").code == 3


@pytest.mark.parametrize(
    ("flags", "left"), [([], (0, 1, 1)), (["--leased"], (0, 0, 1)), (["--scheduled"], (2, 1, 0))]
)
def test_a_queue_is_cleared_of_what_was_meant(
    jobs: RemoteCommand, flags: list[str], left: tuple[int, int, int]
) -> None:
    gone = 4 - sum(left)

    unasked = jobs("queues", "lent", "clear", "jobs", *flags)
    before = counted(jobs)
    ran = jobs("queues", "lent", "clear", "jobs", *flags, "--yes", "--reason", "full")

    assert unasked.code == 2
    assert f"this would delete {gone} item" in unasked.err
    assert before == (2, 1, 1)
    assert ran.code == 0
    assert f"{sum(left)} item" in ran.out
    assert counted(jobs) == left


def test_a_deleted_queue_takes_what_is_scheduled_along(jobs: RemoteCommand) -> None:
    ran = jobs("queues", "lent", "delete", "jobs", "--yes")

    assert ran.out == "Deleted queue jobs with 4 items.\n"


def test_truncated_lists_of_items_say_so(
    jobs: RemoteCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.queue_server.queue_commands._PAGE", 2)
    monkeypatch.setattr("deadletter.queue_server.queue_commands._SHOWN", 2)

    table = jobs("queues", "lent", "items", "jobs")
    everything = jobs("queues", "lent", "items", "jobs", "--json")
    two = jobs("queues", "lent", "items", "jobs", "--json", "-n", "2")
    scheduled = jobs("queues", "lent", "items", "jobs", "--scheduled")

    assert len(table.out.splitlines()) == 3
    assert "Only 2 items shown" in table.err
    assert [one["payload"] for one in everything.documents] == ["b25l", "dHdv", "dGhyZWU="]
    assert everything.err == ""
    assert len(two.documents) == 2
    assert "Only 2 items shown" in two.err
    assert "later" in scheduled.out


@pytest.mark.parametrize("width", [60, 80, 100])
def test_tables_of_queues_fit_the_terminal(
    jobs: RemoteCommand, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = "the-jobs-of-all-our-shops"
    jobs("queues", "lent", "create", f"{long}-dead")
    jobs("queues", "lent", "create", long, "--dead-queue", f"{long}-dead")

    for words in (["list"], ["items", "jobs"], ["stats", "jobs"]):
        ran = jobs("queues", "lent", *words)
        assert max(map(len, ran.out.splitlines())) <= width
    listed = jobs("queues", "lent").out
    assert listed.count("shops ") == 1
    assert listed.count("-dead") >= 2
