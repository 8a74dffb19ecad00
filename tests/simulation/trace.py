"""What happened in a simulation, line by line, and whether it happened again."""

from collections import deque
from hashlib import blake2b
from typing import Final

_KEPT: Final = 400  # lines remembered; all of them are in the digest


class Trace:
    """The lines of one run: the latest to read, all of them to compare."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT)
        self._digest = blake2b(digest_size=16)

    def note(self, at: float, text: str) -> None:
        """Something happened."""
        line = f"{at:10.4f}  {text}"
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    @property
    def digest(self) -> str:
        """The same for the same lines, and for no others."""
        return self._digest.hexdigest()
