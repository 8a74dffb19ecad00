"""
The story of the attempts at one message, one JSON line each.

Lines can be appended without reading what is there, by any driver, and stay
readable in the store. A long story keeps its beginning and its end; in between
stands a line with the outcome "cut", whose number says how many are missing.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from .failure import Failure, Trouble
from .text import encode_document

KEPT: Final = 20  # lines kept inline; the attempts that fall out are counted
_FIRST: Final = 5
_LAST: Final = KEPT - _FIRST - 1
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_CUT: Final = '"outcome":"cut"'  # never within a value: quotes are escaped there


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One try at handling a message, and how it ended."""

    number: int
    at: datetime
    outcome: str = "failed"  # failed, continued, worker-lost, expired, id-conflict, cut
    trouble: Trouble = Trouble.UNKNOWN
    code: str = ""
    error_type: str = ""
    text: str = ""
    stack: str = ""
    seconds: float = 0.0
    worker: str = ""
    version: str = ""
    generation: int = 0
    trace: str = ""  # W3C traceparent of its span


_decoder: Final = msgspec.json.Decoder(Attempt)


class Mark(Struct, frozen=True, gc=False):
    """An attempt without what is long: enough to know which it was."""

    number: int
    at: datetime
    outcome: str = "failed"


_marks: Final = msgspec.json.Decoder(Mark)


def attempt_of(
    failure: Failure,
    *,
    number: int,
    at: datetime,
    outcome: str = "failed",
    seconds: float = 0.0,
    worker: str = "",
    version: str = "",
    generation: int = 0,
) -> Attempt:
    """The record of an attempt that ended in `failure`."""
    return Attempt(
        number=number,
        at=at,
        outcome=outcome,
        trouble=failure.trouble,
        code=failure.code,
        error_type=failure.error_type,
        text=failure.text,
        stack=failure.stack,
        seconds=seconds,
        worker=worker,
        version=version,
        generation=generation,
        trace=failure.trace,
    )


def append(history: str, attempt: Attempt) -> str:
    """The story with one more attempt; bounded however long it goes on."""
    line = encode_document(attempt).decode()
    longer = f"{history}\n{line}" if history else line
    return longer if longer.count("\n") < KEPT else _told(_parsed(longer))


def join(earlier: str, later: str) -> str:
    """
    Two stories told one after the other, without telling anything twice.

    Stories are only ever added to, so whatever stands before a line that both
    have is known to both, even where one of them was cut. Those that have no line
    in common are taken for two.
    """
    if not earlier or not later:
        return earlier or later
    old, new = _parsed(earlier), _parsed(later)
    places = {line: place for place, line in enumerate(old.lines, 1)}
    start = len(new.lines)
    while start and new.lines[start - 1] not in places:
        start -= 1
    fresh = new.lines[start:]
    gone = new.gone if start <= _FIRST else 0
    if start:
        common = places[new.lines[start - 1]]
        hidden = old.gone if common <= _FIRST else 0
        if len(fresh) + gone <= hidden:  # an old copy, left out by now
            return earlier
        # What the earlier one has beyond is among what the later one left out.
        gone = max(0, gone - (len(old.lines) - common + hidden))
    cut_until = _later(old.cut_until, new.cut_until)
    return _told(_Story([*old.lines, *fresh], old.gone + gone, cut_until))


def read(history: str) -> list[Attempt]:
    """The attempts, first to last."""
    if not history:
        return []
    return [_decoder.decode(line) for line in history.split("\n")]


def ends(history: str) -> tuple[Mark | None, Mark | None]:
    """The first attempt and the last, without reading those between."""
    if not history:
        return None, None
    first = _marks.decode(history.partition("\n")[0])
    if "\n" not in history:
        return first, first
    return first, _marks.decode(history.rpartition("\n")[2])


def last_number(history: str) -> int:
    """The number of the last attempt that was recorded; 0 when none was."""
    if not history:
        return 0
    return _marks.decode(history.rpartition("\n")[2]).number


class _Story(NamedTuple):
    """The lines that are there, and how many are not."""

    lines: list[str]
    gone: int = 0
    cut_until: datetime = _LONG_AGO


def _parsed(history: str) -> _Story:
    lines = history.split("\n")
    marks = [_decoder.decode(line) for line in lines if _CUT in line]
    if not marks:
        return _Story(lines)
    gone = sum(mark.number for mark in marks)
    return _Story([line for line in lines if _CUT not in line], gone, marks[-1].at)


def _told(story: _Story) -> str:
    lines, gone, cut_until = story
    if not gone and len(lines) <= KEPT:
        return "\n".join(lines)
    surplus = max(0, len(lines) - _FIRST - _LAST)
    if surplus:
        cut_until = _later(cut_until, _decoder.decode(lines[_FIRST + surplus - 1]).at)
    gone += surplus
    mark = Attempt(number=gone, at=cut_until, outcome="cut", text=f"{gone} attempts left out here")
    # Never at the end: the last line is the last attempt.
    place = min(_FIRST, len(lines) - 1)
    rest = lines[place + surplus :]
    return "\n".join([*lines[:place], encode_document(mark).decode(), *rest])


def _later(one: datetime, two: datetime) -> datetime:
    # Stories from elsewhere may lack a time zone, and such do not compare.
    return max(one, two, key=datetime.timestamp)
