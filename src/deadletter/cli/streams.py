"""Standard output where not every character can be written, or nobody reads."""

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Final, TextIO

from deadletter.output.standard import drain

_SPELLING: Final = "deadletter.spelling"
_FAIL: Final = {"strict", "surrogateescape"}


def take_everything(*streams: TextIO) -> None:
    """Have characters spelled out that a stream's encoding does not know."""
    codecs.register_error(_SPELLING, _spelled)
    for stream in streams:
        if not isinstance(stream, TextIOWrapper) or stream.errors not in _FAIL:
            continue
        if not codecs.lookup(stream.encoding).name.startswith("utf"):
            stream.reconfigure(errors=_SPELLING)


@contextmanager
def restored_streams() -> Iterator[None]:
    """Put the standard streams back at the end, and wait a moment for readers."""
    before = sys.stdout, sys.stderr
    try:
        yield
    finally:
        if before != (sys.stdout, sys.stderr):
            drain()
            sys.stdout, sys.stderr = before


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """As JSON does, so that documents stay what they are."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(f"\\u{pair.hex()}" for pair in pairs), error.end
