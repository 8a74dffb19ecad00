"""A body in the editor of whoever sits here."""

import asyncio
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from deadletter.core.errors import ConfigError

from .interrupts import left_to_child


class Draft:
    """A file that nobody else may read, there until it is forgotten."""

    def __init__(self, command: list[str], body: bytes, name: str) -> None:
        if _is_odd(body):
            raise ConfigError(
                "the body is not text, and an editor would spoil it: give another one"
                " with --body FILE"
            )
        self._command = command
        self._before = body
        suffix = ".json" if body.lstrip()[:1] in (b"{", b"[") else ".txt"
        self.file = Path(tempfile.mkdtemp(prefix="dlq-edit-")) / f"{name}{suffix}"

    async def edited(self) -> bytes:
        """What somebody has made of it."""
        self.file.write_bytes(self._before)
        with left_to_child():
            code = await self._run()
        if code != 0:
            raise ConfigError(
                f"{self._command[0]} ended with an error: nothing was changed"
            )
        return self._after()

    @property
    def is_changed(self) -> bool:
        """Whether somebody has written something."""
        return self.file.exists() and self._after() != self._before

    def forget(self) -> None:
        """Take it away, and whatever the editor left beside it."""
        shutil.rmtree(self.file.parent, ignore_errors=True)

    async def _run(self) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(self.file)
            )
        except OSError as error:
            raise ConfigError(
                f"the editor {self._command[0]} cannot be run ({error.strerror}): set"
                " EDITOR to one that can, or give --body FILE"
            ) from error
        return await process.wait()

    def _after(self) -> bytes:
        try:
            after = self.file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"cannot read what was written: {error.strerror}"
            ) from error
        if not self._before.endswith(b"\n") and after.endswith(b"\n"):
            return after[:-1]  # editors end every line, also the last one
        return after


def editor() -> list[str]:
    """The command of the editor that somebody named."""
    given = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    try:
        words = shlex.split(given or "")
    except ValueError as error:
        raise ConfigError(f"EDITOR is not a command ({error}): set it") from error
    if not words:
        raise ConfigError("no editor is named: set EDITOR, or give --body FILE")
    return words


def _is_odd(body: bytes) -> bool:
    try:
        return "\x00" in body.decode()
    except UnicodeDecodeError:
        return True
