"""dlq report: what happened in a shift."""

from datetime import UTC, datetime

import pytest

from cli.conftest import Command, RemoteCommand
from client.serving import served
from deadletter.core.access import Role
from office.making import make_letters


def test_a_shift_is_reported_as_markdown(dlq: Command) -> None:
    letters = make_letters(3, now=datetime.now(UTC))
    dlq.keep(*letters)
    dlq("review", letters[0].id, "--reason", "looked")

    ran = dlq("report", "--since", "8h")
    as_json = dlq("report", "--json")

    assert ran.out.startswith("# Dead letters, ")
    assert "3 letters died; 3 letters open now." in ran.out
    assert "## Done" in ran.out
    assert "move to reviewed, 1 time" in ran.out
    assert (as_json.document["died"]["letters"], as_json.document["open"]) == (3, 3)


def test_an_invalid_beginning_is_a_usage_error(dlq: Command) -> None:
    dlq.keep(*make_letters(1))

    ran = dlq("report", "--since", "yesterday")

    assert ran.code == 2
    assert "is not a time" in ran.err


def test_a_server_reports_what_the_token_may_see(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq.keep(*make_letters(2, now=datetime.now(UTC)))
    with served(dlq.url, access="on") as server:
        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.READER, "returns"))
        remote = RemoteCommand(dlq, server.url)

        assert "0 letters died; 0 letters open now." in remote("report").out
