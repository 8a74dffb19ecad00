"""dlq workers, locally and through a server."""

import pytest

from cli.conftest import Command, RemoteCommand
from deadletter.core.presence import WorkedMailbox, WorkerSign


def a_worker(number: int, version: str, *mailboxes: str) -> WorkerSign:
    return WorkerSign(
        id=f"w-{number}",
        name=f"shop-{number}:17",
        host=f"shop-{number}",
        version=version,
        mailboxes=tuple(WorkedMailbox(mailbox=name, in_flight=12) for name in mailboxes),
    )


@pytest.mark.parametrize("where", ["local", "remote"])
def test_workers_are_listed(where: str, dlq: Command, request: pytest.FixtureRequest) -> None:
    asking: Command | RemoteCommand = dlq
    if where == "remote":
        asking = request.getfixturevalue("remote")
    signs = [a_worker(1, "1.8.1", "orders", "mails"), a_worker(2, "1.9.0", "orders")]
    dlq.do(lambda engine: engine.letters.note_workers(signs))

    listed = asking("workers")
    documents = asking("--json", "workers", "mails").documents

    assert "shop-1:17" in listed.out
    assert "mails" in listed.out
    assert "2 workers; 1.9.0 runs on 1 of 2, 1.8.1 runs on 1 of 2." in listed.said
    assert [one["name"] for one in documents] == ["shop-1:17"]


def test_without_workers_it_says_so(dlq: Command) -> None:
    dlq.send("orders", "m-1")

    assert "No worker of orders was heard of" in dlq("workers", "orders").said


def test_a_brake_is_shown(dlq: Command) -> None:
    box = WorkedMailbox(mailbox="orders", brake="everything fails\x1b[2J")
    sign = WorkerSign(id="w", name="a:1", host="a", mailboxes=(box,))
    dlq.do(lambda engine: engine.letters.note_workers([sign]))

    said = dlq("workers").out

    assert "brake open: everything fails" in said
    assert "\x1b[2J" not in said
