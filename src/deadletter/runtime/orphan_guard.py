"""
The end of what isolated handlers have started, when their worker is killed.

The kernel ends the process of a handler with its worker, but not the processes which
that one has started: nobody is left to kill their group. So a small process of its
own knows the groups, and kills them when the worker's end of a pipe is closed.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PATIENCE: Final = 1.0  # seconds it has to end
_SCRIPT: Final = str(Path(__file__).with_name("orphan_guard_process.py"))


class OrphanGuard:
    """Process groups that must not outlive this process, however it ends."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self.process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def add(self, group: int) -> None:
        """Kill this group when we are gone."""
        self._groups.add(group)
        if not self._tell(f"+{group}\n"):
            self.close()  # somebody has killed it, or there was none yet
            self._start()
            for one in self._groups:
                self._tell(f"+{one}\n")

    def remove(self, group: int) -> None:
        """Forget this group: it has ended."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard; groups that are left are killed."""
        pipe, self._pipe = self._pipe, None
        process, self.process = self.process, None
        if pipe is not None:
            os.close(pipe)
        if process is not None:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:  # a fork of ours keeps the pipe open
                process.kill()
                process.wait()

    def _start(self) -> None:
        theirs, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self.process = subprocess.Popen(  # noqa: S603 -- our own
                [sys.executable, "-I", "-S", _SCRIPT, str(theirs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs,),
                start_new_session=True,  # whoever signals our group does not mean it
            )
        finally:
            os.close(theirs)

    def _tell(self, line: str) -> bool:
        if self._pipe is None:
            return False
        with suppress(BlockingIOError):
            try:
                os.write(self._pipe, line.encode())
            except BrokenPipeError:
                return False
        return True
