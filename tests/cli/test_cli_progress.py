import io
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.console import Console

from cli.conftest import Command
from deadletter.cli.desk import Desk
from deadletter.cli.ui import bar
from office.making import make_letter


def test_a_person_sees_a_bar() -> None:
    seen = io.StringIO()
    desk = Desk()
    desk.err = Console(file=seen, force_terminal=True, width=80)

    with bar(desk, "sending", 10) as advance:
        advance(4)
        advance(6)

    assert "sending" in seen.getvalue()
    assert "10/10" in seen.getvalue()


def test_progress_without_a_total_shows_a_count() -> None:
    seen = io.StringIO()
    desk = Desk()
    desk.err = Console(file=seen, force_terminal=True, width=80)

    with bar(desk, "writing", None, in_bytes=True) as advance:
        advance(2_000)

    assert "2.0/? kB" in seen.getvalue()


LONG = [
    (["export", "--out", "new.jsonl"], "writing"),
    (["export", "--format", "csv", "--out", "new.csv"], "writing"),
    (["import", "old.jsonl"], "importing"),
    (["review", "is:pending"], "being reviewed"),
    (["discard", "is:pending", "--yes"], "being discarded"),
    (["purge", "is:pending", "--yes", "--reason", "old"], "being purged"),
    (["verify"], "verifying"),
    (["retention", "run", "--yes"], "deleting"),
]


@pytest.fixture
def full(dlq: Command) -> Command:
    dlq.keep(*(make_letter(number) for number in range(3)))
    assert dlq("export", "--out", "old.jsonl").code == 0
    return dlq


@pytest.mark.parametrize(("words", "said"), LONG)
def test_long_work_shows_a_person_how_far_it_is(
    full: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    ran = full(*words)

    assert ran.code == 0
    assert said in ran.err
    assert said not in ran.out


@pytest.mark.parametrize(("words", "said"), LONG)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_progress_is_hidden_off_terminals_and_with_json(
    full: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str, more: list[str]
) -> None:
    if more:  # on a terminal, too
        monkeypatch.setenv("FORCE_COLOR", "1")

    ran = full(*words, *more)

    assert ran.code == 0
    assert ran.err == ""


def test_a_file_is_the_same_whether_somebody_looks_or_not(
    full: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    full("export", "--out", "watched.jsonl")

    old, watched = (
        # The first says when it was written, and the last is a digest of that too.
        Path(name).read_text().splitlines()[1:-1]
        for name in ("old.jsonl", "watched.jsonl")
    )
    assert old == watched
    full("purge", "*", "--yes", "--reason", "again")
    assert full("import", "watched.jsonl").code == 0
    assert len(full("list", "--json").documents) >= 3


@pytest.mark.parametrize("as_json", [True, False])
def test_a_pipe_sees_none(as_json: bool) -> None:
    seen = io.StringIO()
    desk = Desk(as_json=as_json)
    desk.err = Console(file=seen, force_terminal=as_json)

    with bar(desk, "sending", 10) as advance:
        advance(10)

    assert seen.getvalue() == ""


def test_an_actor_is_who_sits_here_unless_told() -> None:
    with (
        patch("getpass.getuser", return_value="anna"),
        patch("socket.gethostname", return_value="desk-1"),
    ):
        assert Desk().by("r").actor == "anna@desk-1"
        assert Desk(actor="bo").by().actor == "bo"
