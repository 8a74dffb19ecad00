"""Errors of handlers on a terminal: once for each cause, the application's own lines first."""

import linecache
import re
from collections.abc import Callable, Iterator
from typing import Final

from rich.text import Text

from deadletter.core.events import Event, Observer
from deadletter.core.failure import Failure
from deadletter.core.failure.capture import is_application
from deadletter.core.redact import redact
from deadletter.core.text import clean, cut, many

_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)')
_CAUSES: Final = 1_000  # remembered
_OWN: Final = 5  # lines of the application that are shown, the innermost ones
_WIDEST: Final = 200  # characters of a line of code


def tracebacks(show: Callable[[Text], None]) -> Observer:
    """Return an observer that shows the failures of handlers, the first of each cause."""
    seen: set[tuple[str, str, str]] = set()

    def observe(event: Event) -> None:
        failure = getattr(event, "failure", None)
        if not isinstance(failure, Failure) or not failure.stack:
            return
        cause = (event.mailbox, failure.error_type, failure.frame)
        if cause in seen or len(seen) >= _CAUSES:
            return
        seen.add(cause)
        show(rendered(failure))

    return observe


def rendered(failure: Failure) -> Text:
    """Return a failure for people: each error, then lines of code, innermost first."""
    text = Text()
    name = failure.error_type.removeprefix("builtins.")
    text.append(clean(f"  {name}: {failure.text}" if failure.text else f"  {name}"), "bold red")
    hidden = 0
    for because, frames in _errors(failure.stack):
        if because:
            text.append(f"\n  {clean(because)}", "red")
        own = [frame for frame in frames if is_application(frame["file"])]
        for frame in own[::-1][:_OWN]:
            place = f"{frame['file']}:{frame['line']} in {frame['function']}"
            text.append(f"\n    {clean(place)}", "cyan")
            if code := _code(frame):
                text.append(f"\n      {clean(code)}")
        hidden += len(frames) - min(len(own), _OWN)
    if hidden:
        text.append(f"\n    and {many(hidden, 'other frame')}: dlq show ID --stacks", "dim")
    return text


def _errors(stack: str) -> Iterator[tuple[str, list[re.Match[str]]]]:
    """Yield the frames of an error, then of each error that led to it, with what it was."""
    because: str = ""
    frames: list[re.Match[str]] = []
    for line in stack.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            frames.append(frame)
        elif line and not line.startswith("  ..."):
            yield because, frames
            because, frames = line, []
    yield because, frames


def _code(frame: re.Match[str]) -> str:
    """Return the line of code, masked; empty if its file cannot be read."""
    return redact(cut(linecache.getline(frame["file"], int(frame["line"])).strip(), _WIDEST))
