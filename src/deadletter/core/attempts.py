"""
The story of the attempts at one message, one JSON line each.

Lines can be appended without reading what is there, by any driver, and stay
readable in the store. A long story keeps its beginning and its end.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from .failure import Failure, Trouble

KEPT: Final = 20  # attempts kept inline; what falls out is counted
_HEAD: Final = 5


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try at handling a message, and how it ended."""

    number: int
    at: datetime
    outcome: str = "failed"  # failed, continued, worker-lost, expired, cut
    trouble: Trouble = Trouble.UNKNOWN
    code: str = ""
    error_type: str = ""
    text: str = ""
    stack: str = ""
    seconds: float = 0.0
    worker: str = ""
    version: str = ""
    generation: int = 0


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Attempt)


def attempt_of(
    failure: Failure, *, number: int, at: datetime, **more: object
) -> Attempt:
    """The record of an attempt that ended in `failure`."""
    return Attempt(
        number=number,
        at=at,
        trouble=failure.trouble,
        code=failure.code,
        error_type=failure.error_type,
        text=failure.text,
        stack=failure.stack,
        **more,  # type: ignore[arg-type]
    )


def append(history: str, attempt: Attempt) -> str:
    """The story with one more attempt; bounded however long it goes on."""
    line = _encoder.encode(attempt).decode()
    if not history:
        return line
    if history.count("\n") < KEPT - 1:
        return f"{history}\n{line}"
    return _cut(f"{history}\n{line}")


def join(earlier: str, later: str) -> str:
    """Two stories told one after the other, without telling anything twice."""
    if not earlier or not later:
        return earlier or later
    seen = set(earlier.split("\n"))
    lines = [line for line in later.split("\n") if line not in seen]
    joined = "\n".join([earlier, *lines])
    return _cut(joined) if joined.count("\n") >= KEPT else joined


def read(history: str) -> list[Attempt]:
    """The attempts, first to last."""
    if not history:
        return []
    return [_decoder.decode(line) for line in history.split("\n")]


def _cut(history: str) -> str:
    lines = history.split("\n")
    head, tail = lines[:_HEAD], lines[_HEAD:]
    gone = 0
    if tail and '"outcome":"cut"' in tail[0]:
        gone = _decoder.decode(tail.pop(0)).number
    overflow = len(head) + 1 + len(tail) - KEPT
    gone += overflow
    mark = Attempt(
        number=gone,
        at=_decoder.decode(tail[overflow - 1]).at,
        outcome="cut",
        text=f"{gone} attempts left out here",
    )
    return "\n".join([*head, _encoder.encode(mark).decode(), *tail[overflow:]])
