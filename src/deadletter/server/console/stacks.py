"""The stack of an error: frames of the application open, those of libraries folded."""

import re
from itertools import groupby
from typing import Final

from msgspec import Struct

from deadletter.core.redact import redact
from deadletter.core.text import many

from .bounds import shortened, weight

_FRAME: Final = re.compile(
    r'\s{0,8}File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})(?P<rest>.*)'
)
_IN: Final = re.compile(r", in (?P<name>.{1,200})")
_LIBRARY: Final = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python\d|<frozen |node_modules"
    r"|[/\\]deadletter[/\\](?:runtime|core|app)"
)
_LINE: Final = 400  # bytes of HTML of one line
_LARGEST: Final = 24_000  # ...of all of them


class Chunk(Struct, frozen=True, kw_only=True):
    """Some lines of a stack; those of libraries are folded under `folds`."""

    lines: tuple[str, ...]
    is_application: bool = False
    folds: str = ""


class Trace(Struct, frozen=True, kw_only=True):
    """A stack: the frame to look at first, and all of it."""

    frame: str  # shop.py:88 in charge; empty if the stack names none
    chunks: tuple[Chunk, ...]
    cut: int = 0  # lines that are not shown


def trace_of(stack: str) -> Trace:
    """Return a stack as a page shows it: its secrets masked, of a long one the end."""
    lines = redact(stack).rstrip("\n").split("\n") if stack else []
    shown: list[str] = []
    room = _LARGEST
    for line in reversed(lines):  # the end of a stack says most
        text = shortened(line, _LINE)
        room -= weight(text) + 1
        if room < 0:
            break
        shown.append(text)
    shown.reverse()
    kinds = list(_kinds(shown))
    chunks = []
    frames = [line for line, kind in zip(shown, kinds, strict=True) if kind == "app"]
    for kind, group in groupby(zip(shown, kinds, strict=True), key=lambda pair: pair[1]):
        some = tuple(line for line, _ in group)
        folds = _folded(some) if kind == "library" and frames else ""
        chunks.append(Chunk(lines=some, is_application=kind == "app", folds=folds))
    named = [line for line in frames if _FRAME.match(line)]
    return Trace(
        frame=_named(named[-1]) if named else "", chunks=tuple(chunks), cut=len(lines) - len(shown)
    )


def _kinds(lines: list[str]) -> list[str]:
    """Return of each line whether it belongs to the application, to a library, or to neither."""
    kinds = []
    kind = "text"
    for line in lines:
        found = _FRAME.match(line)
        if found:
            kind = "library" if _LIBRARY.search(found["file"]) else "app"
        elif not line.startswith("  ") or line.lstrip().startswith("... "):
            kind = "text"
        kinds.append(kind)
    return kinds


def _folded(lines: tuple[str, ...]) -> str:
    frames = sum(_FRAME.match(line) is not None for line in lines)
    return f"{many(frames, 'frame')} of libraries"


def _named(line: str) -> str:
    found = _FRAME.match(line)
    if found is None:
        return ""
    file = found["file"].replace("\\", "/").rpartition("/")[2]
    inside = _IN.match(found["rest"])
    where = f" in {inside['name']}" if inside else ""
    return f"{file}:{found['line']}{where}"
