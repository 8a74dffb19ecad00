"""dlq searches, locally and through a server."""

import pytest

from cli.conftest import Command, RemoteCommand
from deadletter.cli.app import ExitCode

BOTH = pytest.mark.parametrize("where", ["local", "remote"])


@pytest.fixture
def ask(where: str, dlq: Command, request: pytest.FixtureRequest) -> Command | RemoteCommand:
    dlq.send("orders", "m-1")
    if where == "local":
        return dlq
    remote: RemoteCommand = request.getfixturevalue("remote")
    return remote


@BOTH
def test_a_search_is_saved_listed_and_deleted(ask: Command | RemoteCommand) -> None:
    assert "No search is saved yet" in ask("searches").said

    saved = ask("searches", "save", "Old/ orders", "source:orders age:>7d", "--reason", "Mondays")
    assert "Saved the search Old/ orders: source:orders age:>7d" in saved.said
    listed = ask("searches")
    assert "Old/ orders" in listed.out
    assert "source:orders age:>7d" in listed.out

    (document,) = ask("--json", "searches", "list").documents
    assert (document["name"], document["query"]) == ("Old/ orders", "source:orders age:>7d")

    gone = ask("searches", "delete", "Old/ orders")
    assert "it was: source:orders age:>7d" in gone.said
    assert ask("--json", "searches").documents == []


@BOTH
def test_a_search_is_replaced_on_request_only(ask: Command | RemoteCommand) -> None:
    ask("searches", "save", "mine", "is:open")

    refused = ask("searches", "save", "mine", "is:closed")

    assert refused.code == ExitCode.CONFLICT
    assert "exists with another query" in refused.said
    ask("searches", "save", "mine", "is:closed", "--replace")

    assert [one["query"] for one in ask("--json", "searches").documents] == ["is:closed"]


@BOTH
def test_an_invalid_search_is_pointed_at(ask: Command | RemoteCommand) -> None:
    refused = ask("searches", "save", "mine", "is:open is:pendng")

    assert refused.code == ExitCode.USAGE
    assert "is:pendng is not valid" in refused.said
    assert f"  {' ' * 11}^" in refused.said


@BOTH
def test_a_search_that_is_not_there_is_not_found(ask: Command | RemoteCommand) -> None:
    refused = ask("searches", "delete", "mine")

    assert refused.code == ExitCode.NOT_FOUND
    assert "there is no saved search 'mine'" in refused.said
