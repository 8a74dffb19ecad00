"""
Follow a page like a reader does: save its files, run its code, type its commands.

    python -m docs.page docs/quickstart.md            says where it is wrong
    python -m docs.page docs/quickstart.md --write    writes its transcripts anew

A block whose first line names a file is saved as that file, a diff is applied, other
Python is run, all of a page in one namespace. It happens in an empty directory; `tests`
must be in PYTHONPATH.
"""

import contextlib
import getpass
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import msgspec

from deadletter.cli.app import build, run
from docs.reading import ROOT, Block, Command, blocks, commands
from docs.transcript import difference, ids, missing, seen

# A terminal of a usual size, wherever this runs.
TERMINAL = {"COLUMNS": "100", "FORCE_COLOR": "1", "TZ": "UTC"}
_PATIENCE = 40.0  # seconds a worker may take to empty its mailboxes
_PLACEHOLDERS = {"ID", "QUERY"}


class Wrong(Exception):
    """The page says something that is not so."""


class Reader:
    """Somebody who follows a page to the letter."""

    def __init__(self, *, believes: bool = False) -> None:
        self.said: dict[int, list[str]] = {}  # by the line of a command
        self._believes = believes  # what is said now, whatever the page shows
        self._module = ModuleType("page")
        self._behind: list[subprocess.Popen[str]] = []
        self.known: dict[str, str] = {}  # ids on the page, and what they are here
        sys.modules["page"] = self._module

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        if block.language in ("python", "toml") and block.file is not None:
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            # Padded, so that a traceback tells the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, "page", "exec")
            exec(code, self._module.__dict__)
        elif block.language == "diff":
            _edit(block.text)
        elif block.language == "console":
            line = block.line
            try:
                for command in commands(block.text):
                    self._type(command, line)
                    line += 1 + len(command.shown)
            finally:
                self._leave()

    def _type(self, command: Command, line: int) -> None:
        text = command.text
        for shown, here in self.known.items():
            text = text.replace(shown, here)
        words = shlex.split(text, comments=True)
        match words:
            case ["dlq", *rest, "&"]:
                _parse(rest)
                self._behind.append(_started(rest))
                return
            case ["export", setting]:
                name, _, value = setting.partition("=")
                os.environ[name] = value
                return
            case ["make", target]:
                if f"\n{target}:" not in (ROOT / "Makefile").read_text():
                    raise Wrong(f"there is no `make {target}`")
                return
            case ["python", script]:
                output, code = _ran(script)
            case ["dlq", *rest]:
                _parse(rest)
                if _PLACEHOLDERS.intersection(rest) or _serves(rest):
                    return
                output, code = _worked(rest) if "work" in rest else _asked(rest)
            case _:
                return  # pip, curl, an editor: a reader's own business
        said = seen(_anywhere(output))
        # Which office it is each command says first; pages say it once.
        said = [one for one in said if not one.startswith("Office: ")]
        self._compare(command, said, code, line)

    def _leave(self) -> None:
        """End what a block has left running behind it."""
        while self._behind:
            worker = self._behind.pop()
            worker.send_signal(signal.SIGINT)
            worker.communicate(timeout=_PATIENCE)

    def _compare(self, command: Command, said: list[str], code: int, line: int) -> None:
        shown = [one for one in command.shown if one != "^C"]
        self.said[line] = said
        is_refused = any(one.startswith(("dlq: ", "It stopped")) for one in shown)
        if code == 1 or (bool(code) != is_refused and not self._believes):
            raise Wrong(f"`{command.text}` ended with {code}: {'; '.join(said)}")
        if any(one.strip() for one in shown):
            # What a worker says comes in any order.
            compare = missing if "dlq work" in command.text else difference
            wrong = compare(shown, said)
            if wrong is not None and not self._believes:
                raise Wrong(f"`{command.text}` answers otherwise:\n{wrong}")
            self.known |= dict(zip(ids(shown), ids(said), strict=False))


def _anywhere(output: str) -> str:
    """What is said, without what it says of this place, machine and user."""
    for here in (f"{Path.cwd()}/", f"{ROOT}/src/"):
        output = output.replace(here, "")
    machine = socket.gethostname()
    output = output.replace(f"{getpass.getuser()}@{machine}", "anna@desk")
    return re.sub(rf"\b{re.escape(machine)}:(?=\d)", "desk:", output)


def _edit(diff: str) -> None:
    """Change a file; a diff here is its name, old lines and new lines."""
    name, *lines = diff.splitlines()
    file = Path(name.removeprefix("--- "))
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] == sign) for sign in "-+")
    text = file.read_text()
    if old not in text:
        raise Wrong(f"{file} does not hold what is to be changed")
    file.write_text(text.replace(old, new))


def _parse(words: list[str]) -> None:
    """Check that a command and its options exist, without doing anything."""
    app = build(words)
    _, bound, _ = app.meta.parse_args(words, exit_on_error=False, print_error=False)
    app.parse_args(list(bound.args), exit_on_error=False, print_error=False)


def _serves(words: list[str]) -> bool:
    """Whether this would answer requests until somebody stops it."""
    return "serve" in words and "--check" not in words


def _asked(words: list[str]) -> tuple[str, int]:
    """What `dlq` says to a person, and its exit code."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = run(words)
    return output.getvalue(), code


def _ran(script: str) -> tuple[str, int]:
    ended = subprocess.run(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    return ended.stdout, ended.returncode


def _worked(words: list[str]) -> tuple[str, int]:
    """Let a worker empty its mailboxes, then press Ctrl-C."""
    worker = _started(words)
    try:
        deadline = time.monotonic() + _PATIENCE
        while worker.poll() is None and not _is_quiet():
            if time.monotonic() > deadline:
                raise Wrong(f"`dlq {' '.join(words)}` never got done")
            time.sleep(0.1)
        worker.send_signal(signal.SIGINT)
        output, _ = worker.communicate(timeout=_PATIENCE)
    finally:
        worker.kill()
    return output, worker.returncode


def _started(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "deadletter.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _is_quiet() -> bool:
    """Whether every mailbox is empty, but for those that dead letters go to."""
    output, code = _asked(["--json", "queues"])
    if code or not output:
        return False
    queues = [msgspec.json.decode(line) for line in output.splitlines()]
    dead = {queue["options"].get("dead_queue") for queue in queues}
    return not any(
        queue[count]
        for queue in queues
        if queue["options"]["name"] not in dead
        for count in ("ready", "delayed", "claimed", "suspects")
    )


def rewritten(text: str, reader: Reader) -> str:
    """The page with the transcripts it would have now."""
    lines, said = text.splitlines(), reader.said
    for at in sorted(said, reverse=True):
        end = at
        while lines[end] != "```" and not lines[end].startswith("$ "):
            end += 1
        shown = lines[at:end]
        is_abridged = any(line == "…" or line.endswith(" …") for line in shown)
        if any(line not in ("", "^C") for line in shown) and not is_abridged:
            after = [line for line in shown if line == "^C"]
            after += [""] if shown[-1] == "" else []
            told = "\n".join(said[at]).strip("\n").split("\n")
            lines[at:end] = [*told, *after]
    page = "\n".join(lines) + "\n"
    for shown, here in reader.known.items():
        page = page.replace(shown, here)
    return page


def main() -> None:
    """Follow the page that is named."""
    page = Path(sys.argv[1]).resolve()
    text = page.read_text()
    write = "--write" in sys.argv
    reader = Reader(believes=write)
    os.environ.update(TERMINAL)
    time.tzset()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        sys.path.insert(0, place)
        for block in blocks(text):
            try:
                reader.follow(block)
            except Wrong as error:
                sys.exit(f"{page.name}, line {block.line}: {error}")
        os.chdir(ROOT)
    if write:
        page.write_text(rewritten(text, reader))


if __name__ == "__main__":
    main()
