import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command
from deadletter.core.letter import DeadLetter, State
from office.making import make_letter


@pytest.fixture
def letter(dlq: Command) -> DeadLetter:
    letter = make_letter(body=b'{"amount": 1}', headers={"tenant": "eu", "trace": "t"}, key="k")
    dlq.keep(letter)
    return letter


@pytest.fixture
def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that makes $EDITOR run Python code, with the file as `path`."""

    def edits(code: str) -> None:
        script = tmp_path / "editor.py"
        script.write_text(f"import sys, pathlib\npath = pathlib.Path(sys.argv[1])\n{code}")
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")

    return edits


def message_of(dlq: Command, letter: DeadLetter) -> DeadLetter:
    (found,) = dlq.do(lambda engine: engine.letters.get([letter.id]))
    assert isinstance(found, DeadLetter)
    return found


def test_a_body_from_a_file_takes_the_place_of_the_one_that_died(
    dlq: Command, letter: DeadLetter, tmp_path: Path
) -> None:
    (tmp_path / "new").write_bytes(b'{"amount": 2, "odd": "\xff"}')

    ran = dlq(
        *("edit", letter.id[:8], "--body", str(tmp_path / "new")), *("--reason", "typo", "--yes")
    )

    assert (ran.code, ran.err) == (0, "")
    found = message_of(dlq, letter)
    assert found.message.body == b'{"amount": 2, "odd": "\xff"}'
    assert found.original == letter.message


def test_the_difference_is_shown_and_somebody_must_agree(
    dlq: Command, letter: DeadLetter, tmp_path: Path
) -> None:
    (tmp_path / "new").write_bytes(b'{"amount": 2}')

    ran = dlq("edit", letter.id, "--body", str(tmp_path / "new"))

    assert ran.code == 2
    assert '-   "amount": 1' in ran.out
    assert '+   "amount": 2' in ran.out
    assert "--yes" in ran.err
    assert message_of(dlq, letter).original is None


def test_headers_key_and_type_can_be_set(dlq: Command, letter: DeadLetter) -> None:
    ran = dlq(
        *("edit", letter.id, "--set", "tenant=us", "--set", "x=a=b"),
        *("--unset", "trace", "--key", "other", "--content-type", "a/b", "--yes"),
    )

    assert ran.code == 0
    message = message_of(dlq, letter).message
    assert message.headers == (("tenant", b"us"), ("x", b"a=b"))
    assert (message.key, message.content_type) == ("other", "a/b")
    assert message.body == letter.message.body


def test_an_editor_gets_the_body_and_the_line_break_it_adds_is_dropped(
    dlq: Command, letter: DeadLetter, editor: Any, tmp_path: Path
) -> None:
    editor("path.write_text(path.read_text().replace('1', '3') + '\\n')")

    ran = dlq("--json", "edit", letter.id, "--yes")

    assert ran.code == 0
    assert ran.document["revision"] == 1
    assert message_of(dlq, letter).message.body == b'{"amount": 3}'


def test_rejected_edits_are_kept_in_a_file(dlq: Command, letter: DeadLetter, editor: Any) -> None:
    editor("path.write_text('precious')")

    ran = dlq("edit", letter.id)  # nobody to ask, and no --yes

    assert ran.code == 2
    (said,) = [line for line in ran.err.splitlines() if "Your changes are in" in line]
    file = Path(said.rpartition(" ")[2])
    assert file.read_text() == "precious"
    assert file.parent.stat().st_mode & 0o077 == 0
    file.unlink()
    file.parent.rmdir()


def test_an_editor_that_changes_nothing_changes_nothing(
    dlq: Command, letter: DeadLetter, editor: Any
) -> None:
    editor("")

    ran = dlq("edit", letter.id)

    assert (ran.code, message_of(dlq, letter).head.revision) == (0, 0)
    assert "No difference" in ran.out


def test_bodies_that_an_editor_would_change_are_not_opened(dlq: Command, editor: Any) -> None:
    editor("raise SystemExit(1)")
    letter = make_letter(body=b"\xff\x00")
    dlq.keep(letter)

    ran = dlq("edit", letter.id, "--yes")

    assert ran.code == 2
    assert "--body FILE" in ran.err


def test_without_an_editor_it_says_what_to_do(
    dlq: Command, letter: DeadLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)

    ran = dlq("edit", letter.id)

    assert ran.code == 2
    assert "set EDITOR" in ran.err


def test_a_letter_that_is_not_open_is_refused_before_anything_is_written(
    dlq: Command, editor: Any
) -> None:
    editor("raise AssertionError")
    letter = make_letter(state=State.CLOSED)
    dlq.keep(letter)

    ran = dlq("edit", letter.id, "--yes")

    assert ran.code == 4
    assert "reopen it first" in ran.err


def test_show_tells_of_an_edit(dlq: Command, letter: DeadLetter) -> None:
    dlq("edit", letter.id, "--set", "tenant=us", "--reason", "moved", "--yes")

    page = dlq("show", letter.id)
    document = dlq("--json", "show", letter.id).document

    assert "Edited since it died" in page.out
    assert "- tenant: eu" in page.out
    assert "+ tenant: us" in page.out
    assert "edited it (headers), because: moved" in page.out
    assert document["original"]["headers"] == ["tenant: eu", "trace: t"]
    assert document["message"]["headers"] == ["trace: t", "tenant: us"]


def test_the_body_that_died_can_be_had_as_it_was(
    dlq: Command, letter: DeadLetter, tmp_path: Path
) -> None:
    (tmp_path / "new").write_bytes(b"\xff")
    dlq("edit", letter.id, "--body", str(tmp_path / "new"), "--yes")
    show = [sys.executable, "-m", "deadletter.cli", "show", letter.id, "--raw"]

    now, died = (
        subprocess.run([*show, *more], check=True, capture_output=True).stdout
        for more in ((), ("--original",))
    )

    assert (now, died) == (b"\xff", letter.message.body)


@pytest.fixture
def drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of drafts."""
    place = tmp_path / "drafts"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("false", "ended with exit code 1"),
        ("/no/such/editor", "set EDITOR"),
        ("'half", "EDITOR is not a valid command"),
        (" ", "set EDITOR"),
    ],
)
def test_an_editor_that_fails_is_a_sentence_and_leaves_nothing_behind(
    dlq: Command,
    letter: DeadLetter,
    drafts: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    command: str,
    said: str,
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", command)

    ran = dlq("edit", letter.id, "--yes")

    assert ran.code == 2
    assert said in ran.err
    assert not list(drafts.iterdir())


def test_text_written_by_a_failing_editor_is_kept(
    dlq: Command, letter: DeadLetter, editor: Any, drafts: Path
) -> None:
    editor("path.write_text('precious')\nraise SystemExit(1)")

    ran = dlq("edit", letter.id, "--yes")

    (kept,) = drafts.rglob("*.json")
    assert ran.code == 2
    assert f"Your changes are in {kept}" in ran.err


def test_an_interrupt_at_the_question_says_where_the_draft_is(
    dlq: Command, letter: DeadLetter, editor: Any, drafts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    editor("path.write_text('precious')")
    monkeypatch.setattr("deadletter.cli.edit.ask_to_confirm", interrupted)

    ran = dlq("edit", letter.id)

    (kept,) = drafts.rglob("*.json")
    assert ran.code == 130
    assert str(kept) in ran.err


def test_an_interrupt_while_an_editor_runs_is_the_editors(
    dlq: Command, letter: DeadLetter, editor: Any, drafts: Path
) -> None:
    editor(
        "import os, signal, time\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(0.3)\n"
        "path.write_text('done')"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "deadletter.cli", "edit", letter.id, "--yes"],
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 0
    assert message_of(dlq, letter).message.body == b"done"


def looks(dlq: Command, letter: DeadLetter) -> int:
    """Return the number of `reveal` entries in the audit."""
    entries = dlq.do(lambda engine: engine.letters.audit(target=letter.id))
    return sum(entry.action == "reveal" for entry in entries)


def test_only_who_is_shown_the_contents_has_looked_at_them(
    dlq: Command, letter: DeadLetter, editor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq("edit", letter.id, "--body", "/no/such/file", "--yes")
    dlq("edit", letter.id, "--set", "nonsense", "--yes")
    dlq("edit", letter.id, "--set", "tenant=us", "--yes")
    monkeypatch.setenv("EDITOR", "")
    dlq("edit", letter.id, "--yes")
    assert looks(dlq, letter) == 0

    dlq("edit", letter.id, "--set", "tenant=asia", "--reveal", "--yes")
    assert looks(dlq, letter) == 1
    editor("")
    dlq("edit", letter.id)
    assert looks(dlq, letter) == 2
