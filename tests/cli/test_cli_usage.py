"""Usage errors, help, version, completion and exit codes."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cli.conftest import Command
from deadletter.cli.app import NAMES, ExitCode, build, code_for
from deadletter.cli.desk import Desk
from deadletter.core import errors
from office.making import make_letter

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(dlq: Command, name: str) -> None:
    ran = dlq(name, "--help")

    assert ran.code == 0
    assert f"Usage: dlq {name}" in ran.out
    assert "--json" in ran.out


def test_help_lists_every_command_and_the_exit_codes(dlq: Command) -> None:
    ran = dlq("--help")

    assert ran.code == 0
    for name in NAMES:
        assert f" {name} " in ran.out
    assert "130 interrupted" in ran.out


def test_a_mistyped_command_is_guessed(dlq: Command) -> None:
    ran = dlq("lits")

    assert (ran.code, ran.out) == (2, "")
    assert "did you mean `dlq list`?" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--colour", "red"],
        ["list", "--limit", "many"],
        ["list", "--limit", "0"],
        ["show"],
        ["replay", "x", "--rate", "0"],
        ["replay", "x", "--cap", "0"],
        ["queues", "create"],
        ["completion", "tcsh"],
        ["send", "orders"],
        ["work", "--processes", "0"],
        ["export", "--format", "xml"],
    ],
)
def test_usage_errors_are_one_sentence_with_exit_code_2(dlq: Command, words: list[str]) -> None:
    ran = dlq(*words)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("dlq: ")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


def test_global_options_stand_before_or_after_the_command(dlq: Command, tmp_path: Path) -> None:
    dlq.keep(make_letter())
    other = f"sqlite:///{tmp_path}/other.db"

    assert len(dlq("--json", "list").documents) == 1
    assert len(dlq("list", "--json").documents) == 1
    assert dlq("--url", other, "list").code == 3
    assert dlq("list", "--url", other).code == 3


@pytest.mark.parametrize(("url", "code"), [("nonsense://x", 2), ("sqlite:////no/such/dir/x.db", 3)])
def test_an_engine_that_cannot_be_opened_is_a_sentence(dlq: Command, url: str, code: int) -> None:
    ran = dlq("list", "--url", url)

    assert ran.code == code
    assert ran.err.startswith("dlq: ")


def test_a_file_that_is_no_office_is_a_sentence(dlq: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)

    ran = dlq("list", "--url", f"sqlite:///{tmp_path}/notes.txt")

    assert ran.code == 2
    assert "is not a SQLite database" in ran.err


def test_a_file_of_somebody_else_is_a_sentence(dlq: Command, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute("CREATE TABLE users (a)")
    before = (tmp_path / "app.db").read_bytes()

    ran = dlq("list", "--url", f"sqlite:///{tmp_path}/app.db")

    assert ran.code == 2
    assert "name a file that only deadletter uses" in ran.err
    assert (tmp_path / "app.db").read_bytes() == before


def test_an_unexpected_error_is_a_sentence_and_a_traceback_only_on_request(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq.keep(make_letter())

    def broken(*_: object) -> None:
        raise RuntimeError("\x1b[31moops")

    monkeypatch.setattr("deadletter.office.letters.Letters.understand", broken)

    quiet = dlq("list")
    monkeypatch.setenv("DLQ_DEBUG", "1")
    loud = dlq("list")

    assert quiet.code == loud.code == 1
    assert "RuntimeError: \\x1b[31moops" in quiet.err
    assert "Traceback" not in quiet.err
    assert "Traceback" in loud.err


def test_every_kind_of_error_has_its_exit_code() -> None:
    assert code_for(errors.QueryError("x")) is ExitCode.USAGE
    assert code_for(errors.ConfigError("x")) is ExitCode.USAGE
    assert code_for(errors.NotFound("x")) is ExitCode.NOT_FOUND
    assert code_for(errors.Conflict("x")) is ExitCode.CONFLICT
    assert code_for(errors.Unavailable("x")) is ExitCode.UNAVAILABLE
    assert code_for(errors.Refused("x")) is ExitCode.UNAVAILABLE
    assert code_for(KeyboardInterrupt()) is ExitCode.INTERRUPTED
    assert code_for(ValueError()) is ExitCode.UNEXPECTED


def test_an_interrupt_is_exit_code_130(dlq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    dlq.keep(make_letter())

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("deadletter.office.letters.Letters.understand", interrupted)

    assert dlq("list").code == 130


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(dlq: Command, shell: str) -> None:
    ran = dlq("completion", shell)

    assert ran.code == 0
    for name in ("replay", "groups", "dry-run"):
        assert name in ran.out


def test_bash_understands_its_completion(dlq: Command) -> None:
    script = dlq("completion", "bash").out

    checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False)

    assert checked.returncode == 0


def test_help_names_each_command_once() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert set(NAMES) <= set(build())


def test_the_command_runs_as_a_process(dlq: Command) -> None:
    dlq.keep(make_letter(error_text="\x1b[31mred"))
    environ = {**os.environ, "NO_COLOR": "1"}

    ran = subprocess.run(
        [sys.executable, "-m", "deadletter.cli", "list"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0
    assert "\\x1b[31mred" in ran.stdout
    assert "\x1b" not in ran.stdout


@pytest.mark.parametrize(
    "words",
    [
        *(["list"], ["groups"], ["show"], ["stats"], []),
        *(["--help"], ["show", "--help"], ["groups", "ack", "--help"], ["--version"]),
    ],
)
def test_a_closed_pipe_is_not_an_error(dlq: Command, words: list[str]) -> None:
    letter = make_letter()
    dlq.keep(letter)
    if words == ["show"]:
        words = ["show", letter.id]

    with subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        ran.stdout.close()  # long before it says anything
        said = [line for line in ran.stderr if not line.startswith("Office: ")]

    assert (ran.returncode, said) == (0, [])


def test_a_reader_that_has_seen_enough_is_no_error(dlq: Command) -> None:
    dlq.keep(*(make_letter(n) for n in range(2_000)))

    ran = subprocess.run(
        f"{sys.executable} -m deadletter.cli list --json --limit 2000 | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""
    assert ran.stdout.count("\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252:surrogateescape"])
def test_unencodable_characters_are_escaped(dlq: Command, encoding: str) -> None:
    dlq.keep(make_letter(error_text="größe ✓ 😀"))
    environ = {**os.environ, "PYTHONIOENCODING": encoding}

    def ran(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "deadletter.cli", *words],
            env=environ,
            capture_output=True,
            encoding=encoding.partition(":")[0],
            check=True,
        ).stdout

    assert "\\u2713 " in ran("verify")
    assert "by cause" in ran()
    assert json.loads(ran("list", "--json"))["error_text"] == "größe ✓ 😀"


@pytest.mark.parametrize("words", [[], ["show", "ID"], ["list", "-n", "1"]])
def test_suggested_commands_name_the_same_office(dlq: Command, words: list[str]) -> None:
    letter = make_letter()
    dlq.keep(letter, make_letter(2))
    words = [letter.id if word == "ID" else word for word in words]

    given, known = dlq("--url", dlq.url, *words), dlq(*words)

    assert f"dlq --url {dlq.url} " in given.out + given.err
    assert "--url" not in known.out + known.err


@pytest.mark.parametrize(
    ("url", "begins"),
    [
        ("sqlite:///my office.db", "dlq --url 'sqlite:///my office.db'"),
        ("postgresql://me:secret@host/office", "dlq --url …"),
        ("postgresql://host/office?password=secret", "dlq --url …"),
    ],
)
def test_a_secret_in_a_url_is_not_repeated(url: str, begins: str) -> None:
    assert Desk(url=url).dlq == begins
    assert Desk(server="http://host:1").dlq == "dlq --server http://host:1"
    assert Desk(office=url).dlq == begins.replace("--url", "--office")


@pytest.mark.parametrize(
    "words", [["nonsense", "--help"], ["--help", "nonsense"], ["queues", "frob", "--help"]]
)
def test_help_on_a_command_that_does_not_exist_is_a_usage_error(
    dlq: Command, words: list[str]
) -> None:
    ran = dlq(*words)

    assert ran.code == 2
    assert ran.out == ""
    assert words[-2] in ran.err or words[-1] in ran.err


@pytest.mark.parametrize("words", [["show"], ["queues", "create"], ["replay"], []])
def test_help_on_a_command_says_how_to_use_it(dlq: Command, words: list[str]) -> None:
    ran = dlq(*words, "--help")

    assert ran.code == 0
    assert "Usage: dlq" in ran.out
