"""The stack of an error as a page shows it: own frames open, those of libraries folded."""

import re
from itertools import groupby
from typing import Final

from msgspec import Struct

from deadletter.core.redact import redact
from deadletter.core.text import cut, many

_FRAME: Final = re.compile(r'\s{0,8}File "([^"]{1,400})", line \d{1,9}')
_LIBRARY: Final = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python\d|<frozen |node_modules"
    r"|[/\\]deadletter[/\\](?:runtime|core|app)"
)
_WIDEST: Final = 300  # characters of a line
_MOST: Final = 80  # lines; a stack that was captured here has fewer


class Chunk(Struct, frozen=True, kw_only=True):
    """Some lines of a stack; those of libraries are folded under `folds`."""

    text: str
    is_own: bool = False
    folds: str = ""


def chunks_of(stack: str) -> tuple[Chunk, ...]:
    """Return a stack in chunks; of a long one, the end, which says most."""
    lines = [cut(line, _WIDEST) for line in redact(stack).rstrip("\n").split("\n")]
    left_out = len(lines) - _MOST
    if left_out > 0:
        lines = lines[-_MOST:]
    kinds = _kinds(lines)
    has_own = "own" in kinds
    found = [Chunk(text=f"… {many(left_out, 'line')} before")] if left_out > 0 else []
    for kind, pairs in groupby(zip(kinds, lines, strict=True), key=lambda pair: pair[0]):
        some = [line for _, line in pairs]
        folds = ""
        if kind == "library" and has_own:
            frames = sum(_FRAME.match(line) is not None for line in some)
            folds = f"{many(frames, 'frame')} of libraries"
        found.append(Chunk(text="\n".join(some), is_own=kind == "own", folds=folds))
    return tuple(found) if any(chunk.text for chunk in found) else ()


def _kinds(lines: list[str]) -> list[str]:
    """Return of each line whether it is of the application, of a library, or neither."""
    kinds: list[str] = []
    kind = "text"
    for line in lines:
        found = _FRAME.match(line)
        if found is not None:
            kind = "library" if _LIBRARY.search(found[1]) else "own"
        elif not line.startswith("  ") or line.lstrip().startswith("... "):
            kind = "text"
        kinds.append(kind)
    return kinds
