"""dlq outages, locally and through a server."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from cli.conftest import Command, RemoteCommand
from deadletter.testing.letters_filing import a_window


def hold_back(dlq: Command, mailbox: str = "orders") -> None:
    now = datetime.now(UTC)
    window = replace(a_window(mailbox=mailbox), opened_at=now - timedelta(minutes=2), seen_at=now)
    dlq.do(lambda engine: engine.letters.save_window(window))


def test_without_an_outage_it_says_so(dlq: Command) -> None:
    dlq.send("orders", "m-1")

    assert "No outages." in dlq("outages").said
    assert dlq("outages", "release", "orders", "--yes").code == 3


@pytest.mark.parametrize("where", ["local", "remote"])
def test_outages_are_listed_and_released(
    where: str, dlq: Command, request: pytest.FixtureRequest
) -> None:
    if where == "remote":
        asking: Command | RemoteCommand = request.getfixturevalue("remote")
    else:
        asking = dlq
    hold_back(dlq)

    listed = asking("outages")
    (document,) = asking("--json", "outages", "--open").documents
    released = asking("outages", "release", "orders", "--reason", "known", "--yes")

    assert "systemic" in listed.out
    assert "orders has been stopped for 2 min" in listed.said
    assert document["state"] == "open"
    assert document["window"]["held"] == 2
    assert released.code == 0
    assert "Released 1 worker of orders" in released.said
    (document,) = asking("--json", "outages").documents
    assert document["window"]["release"]["reason"] == "known"


def test_the_overview_does_not_say_that_all_is_well(dlq: Command) -> None:
    hold_back(dlq)

    said = dlq().said

    assert "orders has been stopped" in said
    assert "All is well" not in said


def test_releasing_asks_first(dlq: Command) -> None:
    hold_back(dlq)

    refused = dlq("outages", "release", "orders")

    assert refused.code == 2
    assert "--yes" in refused.err
