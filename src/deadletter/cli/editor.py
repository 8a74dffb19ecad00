"""A body in the editor of whoever sits here."""

import asyncio
import os
import shlex
import tempfile
from pathlib import Path

from deadletter.core.errors import ConfigError


class Draft:
    """A file that nobody else may read, there until it is forgotten."""

    def __init__(self, body: bytes, name: str) -> None:
        if _is_odd(body):
            raise ConfigError(
                "the body is not text, and an editor would spoil it: give another one"
                " with --body FILE"
            )
        self._command = _editor()
        self._before = body
        suffix = ".json" if body.lstrip()[:1] in (b"{", b"[") else ".txt"
        self.file = Path(tempfile.mkdtemp(prefix="dlq-edit-")) / f"{name}{suffix}"

    async def edited(self) -> bytes:
        """What somebody has made of it."""
        self.file.write_bytes(self._before)
        process = await asyncio.create_subprocess_exec(*self._command, str(self.file))
        if await process.wait() != 0:
            raise ConfigError(
                f"{self._command[0]} ended with an error: nothing was changed"
            )
        after = self.file.read_bytes()
        if not self._before.endswith(b"\n") and after.endswith(b"\n"):
            return after[:-1]  # editors end every line, also the last one
        return after

    def forget(self) -> None:
        """Take it away, and whatever the editor left beside it."""
        for file in self.file.parent.iterdir():
            file.unlink()
        self.file.parent.rmdir()


def _editor() -> list[str]:
    given = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not given:
        raise ConfigError("no editor is named: set EDITOR, or give --body FILE")
    return shlex.split(given)


def _is_odd(body: bytes) -> bool:
    try:
        return "\x00" in body.decode()
    except UnicodeDecodeError:
        return True
