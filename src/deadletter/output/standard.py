"""The standard streams of this process, made such that nobody waits for a reader."""

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from io import TextIOWrapper
from typing import Final

from deadletter.core.counts import many

from .bounded_output import BoundedOutput, Notice, plain_notice

LAST_WORDS: Final = 1.0  # seconds a process waits for its readers when it ends

_outputs: Final[list[BoundedOutput]] = []


def never_block(notice: Callable[[str], Notice] = lambda name: plain_notice) -> None:
    """
    Make `sys.stdout` and `sys.stderr` bounded outputs.

    A stream without a file descriptor stays as it is. `notice` gives, by the name of
    the stream, the line that stands for dropped ones. `sys.__stdout__` and
    `sys.__stderr__` still wait for their readers.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, TextIOWrapper):
            continue
        if isinstance(stream.buffer, BoundedOutput):
            continue
        try:
            descriptor = stream.fileno()
        except OSError:  # it is closed, or no file
            continue
        stream.flush()
        output = BoundedOutput(descriptor, notice=notice(name))
        bounded = TextIOWrapper(
            output,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=True,  # whole lines are kept or dropped
        )
        _outputs.append(output)
        setattr(sys, name, bounded)


def drain(*, within: float = LAST_WORDS) -> bool:
    """Wait until the bounded streams have been written; False if time ran out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(getattr(stream, "buffer", None), BoundedOutput):
            stream.flush()  # what has no end of line yet
    until = time.monotonic() + within
    left = [one for one in _outputs if not one.drain(until - time.monotonic())]
    return not left


def dropped_lines() -> int:
    """Count the lines that were dropped so far because nobody read them."""
    return sum(one.dropped for one in _outputs)


def dropped_note(now: datetime) -> str | None:
    """Return a sentence for people about dropped lines; None if there are none."""
    since = [one.dropped_since for one in _outputs if one.dropped_since is not None]
    if not since:
        return None
    lines = many(dropped_lines(), "line")
    first = now - timedelta(seconds=time.monotonic() - min(since))
    return (
        f"{lines} dropped since {first:%Y-%m-%d %H:%M:%S} UTC because nobody"
        " read the output"
    )
