"""dlq export and dlq import: files are complete or missing, and are checked first."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.conftest import Command
from deadletter.core.errors import Unavailable
from deadletter.core.letter import DeadLetter
from deadletter.office.archive import Seal
from office.making import make_letters

pytestmark = pytest.mark.slow

PATIENCE = 60.0


@pytest.fixture
def letters(dlq: Command) -> list[DeadLetter]:
    letters = make_letters(150)
    dlq.keep(*letters)
    return letters


@pytest.fixture
def archive(dlq: Command, letters: list[DeadLetter], tmp_path: Path) -> Path:
    file = tmp_path / "letters.jsonl"
    assert dlq("export", "--out", str(file)).code == 0
    return file


def other(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/other.db"


def count(dlq: Command, url: str) -> int:
    ran = dlq("--json", "list", "--url", url)
    return len(ran.documents) if ran.code == 0 else 0


def dlq_process(*words: str, **how: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "deadletter.cli", *words]
    return subprocess.Popen(command, **how)  # type: ignore[call-overload, no-any-return]


def test_the_beginning_of_an_archive_is_refused_and_named(
    dlq: Command, archive: Path, tmp_path: Path
) -> None:
    lines = archive.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:100]))

    ran = dlq("import", str(cut), "--url", other(tmp_path))

    assert ran.code == 2
    assert "cut.jsonl: the archive is damaged (1 problem)" in ran.err
    assert "line 101: the last line is missing; 99 letters" in ran.err
    assert "take the 99 intact letters: --salvage" in ran.err
    assert count(dlq, other(tmp_path)) == 0


def test_removed_and_changed_lines_are_refused(
    dlq: Command, archive: Path, letters: list[DeadLetter], tmp_path: Path
) -> None:
    lines = archive.read_bytes().splitlines(keepends=True)
    thin, forged = tmp_path / "thin.jsonl", tmp_path / "forged.jsonl"
    thin.write_bytes(b"".join(lines[:20] + lines[30:]))
    forged.write_bytes(b"".join([*lines[:5], lines[5].replace(b"the bank", b"nobody"), *lines[6:]]))

    one, two = (dlq("import", str(f), "--url", other(tmp_path)) for f in (thin, forged))

    assert (one.code, two.code) == (2, 2)
    assert "150 letters were exported, 140 are here" in one.err
    assert "line 6, letter " in two.err
    assert "its checksum does not match" in two.err
    assert count(dlq, other(tmp_path)) == 0


def test_salvage_says_what_it_left_out(dlq: Command, archive: Path, tmp_path: Path) -> None:
    lines = archive.read_bytes().splitlines(keepends=True)
    archive.write_bytes(b"".join(lines[:100]))

    ran = dlq("import", str(archive), "--salvage", "--url", other(tmp_path))
    told = dlq("--json", "import", str(archive), "--salvage", "--url", other(tmp_path))

    assert ran.code == told.code == 6
    assert "99 letters imported" in ran.out
    assert "line 101: the last line is missing" in ran.err
    assert (told.document["known"], told.document["wrong"]) == (99, 1)
    assert count(dlq, other(tmp_path)) == 99


def test_an_archive_can_be_piped(dlq: Command, archive: Path, tmp_path: Path) -> None:
    with archive.open("rb") as whole:
        piped = dlq_process(
            *("import", "-", "--url", other(tmp_path)), stdin=whole, stdout=subprocess.PIPE
        )
        out, _ = piped.communicate(timeout=PATIENCE)
    cut = dlq_process(
        *("import", "-", "--url", other(tmp_path)), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, err = cut.communicate(archive.read_bytes()[:-10], timeout=PATIENCE)

    assert (piped.returncode, cut.returncode) == (0, 2)
    assert b"150 letters imported from standard input" in out
    assert b"standard input: the archive is damaged" in err


def test_a_pipe_with_a_name_is_read_once(dlq: Command, archive: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    content = archive.read_bytes()
    writer = threading.Thread(target=lambda: fifo.write_bytes(content))
    writer.start()

    ran = dlq("import", str(fifo), "--url", other(tmp_path))

    writer.join(PATIENCE)
    assert ran.code == 0, ran.err


def test_a_failed_export_leaves_nothing_under_its_name(
    dlq: Command, letters: list[DeadLetter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seal: Seal) -> bytes:
        raise Unavailable("the server is gone")

    monkeypatch.setattr(Seal, "end", broken)
    before = sorted(tmp_path.iterdir())

    for words in ((), ("--force",)):
        ran = dlq("export", "--out", str(tmp_path / "out.jsonl"), *words)
        assert ran.code == 5
    there = tmp_path / "there.jsonl"
    there.write_text("precious")
    assert dlq("export", "--out", str(there), "--force").code == 5

    assert there.read_text() == "precious"
    assert sorted(tmp_path.iterdir()) == sorted([*before, there])


def test_an_interrupted_export_leaves_nothing_under_its_name(
    dlq: Command, letters: list[DeadLetter], tmp_path: Path
) -> None:
    place = tmp_path / "exports"
    place.mkdir()
    script = (
        "import os, signal, sys\n"
        "from deadletter.cli.app import run\n"
        "from deadletter.office.archive import Seal\n"
        "def end(seal):\n"
        "    os.kill(os.getpid(), int(sys.argv[1]))\n"
        "    return b''\n"
        "Seal.end = end\n"
        "sys.exit(run(sys.argv[2:]))\n"
    )
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        words = [str(int(number)), "export", "--out", str(place / "out.jsonl")]
        ended = subprocess.run(
            [sys.executable, "-c", script, *words], timeout=PATIENCE, check=False
        )
        assert ended.returncode == code
        assert not (place / "out.jsonl").exists()
        if number == signal.SIGINT:
            assert list(place.iterdir()) == []

    assert dlq("export", "--out", str(place / "out.jsonl")).code == 0
    assert dlq("import", str(place / "out.jsonl")).code == 0


def test_a_full_disk_leaves_nothing_under_its_name(
    dlq: Command, letters: list[DeadLetter], tmp_path: Path
) -> None:
    place = tmp_path / "exports"
    place.mkdir()

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))

    full = dlq_process(
        *("export", "--out", str(place / "out.jsonl")), stderr=subprocess.PIPE, preexec_fn=small
    )
    _, err = full.communicate(timeout=PATIENCE)

    assert full.returncode == 5, err
    assert b"no file of that name was created" in err
    assert list(place.iterdir()) == []


def test_devices_are_written_to_as_they_are(dlq: Command, letters: list[DeadLetter]) -> None:
    assert dlq("export", "--out", "/dev/null").code == 4
    assert dlq("export", "--out", "/dev/null", "--force").code == 0
    assert Path("/dev/null").is_char_device()


def test_an_archive_on_standard_output_ends_with_its_last_line(
    dlq: Command, letters: list[DeadLetter]
) -> None:
    out, _ = dlq_process("export", stdout=subprocess.PIPE).communicate(timeout=PATIENCE)

    lines = out.splitlines()
    assert json.loads(lines[0])["format"] == "deadletter-letters"
    assert json.loads(lines[-1])["letters"] == 150
