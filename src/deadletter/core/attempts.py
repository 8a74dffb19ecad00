"""
The history of a message's attempts, one JSON line each.

A driver can append a line without reading the others, and the lines stay readable in the store.
A long history keeps its beginning and its end. In between, one line with the outcome "cut" has
the number of attempts left out.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from .failure import Failure, Trouble
from .text import encode_document

KEPT: Final = 20  # lines kept inline; attempts that were cut are counted
_FIRST: Final = 5
_LAST: Final = KEPT - _FIRST - 1
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_CUT: Final = '"outcome":"cut"'  # never within a value: quotes are escaped there


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt to process a message, and its outcome."""

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
    """The short fields of an attempt, which identify it."""

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
    """Return the record of an attempt that ended in `failure`."""
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
    """Return the history with one more attempt, cut to at most `KEPT` lines."""
    line = encode_document(attempt).decode()
    if not history:
        return line
    longer = f"{history}\n{line}"
    return longer if _has_room(history) else _told(_parsed(longer))


def _has_room(history: str) -> bool:
    """Return whether a history has fewer than `KEPT` lines."""
    # `str.count` looks at every character; `find` skips to the next line.
    end = 0
    for _ in range(KEPT - 1):
        end = history.find("\n", end) + 1
        if not end:
            return True
    return False


def join(earlier: str, later: str) -> str:
    """
    Return two histories as one, without repeating attempts that are in both.

    Histories only grow, so everything before a line that both have is known to both, even where
    one of them was cut. Histories without a common line follow one another.
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
        # The lines that only the earlier one has are among those cut from the later one.
        gone = max(0, gone - (len(old.lines) - common + hidden))
    cut_until = _later(old.cut_until, new.cut_until)
    return _told(_Story([*old.lines, *fresh], old.gone + gone, cut_until))


def read(history: str) -> list[Attempt]:
    """Return the attempts, first to last."""
    if not history:
        return []
    return [_decoder.decode(line) for line in history.split("\n")]


def ends(history: str) -> tuple[Mark | None, Mark | None]:
    """Return the first and the last attempt without decoding those between."""
    if not history:
        return None, None
    first = _marks.decode(history.partition("\n")[0])
    if "\n" not in history:
        return first, first
    return first, _marks.decode(history.rpartition("\n")[2])


def last_number(history: str) -> int:
    """Return the number of the last recorded attempt, or 0 if there is none."""
    if not history:
        return 0
    return _marks.decode(history.rpartition("\n")[2]).number


class _Story(NamedTuple):
    """The lines of a history, and the number of attempts that were cut."""

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
    # Imported histories may lack a time zone; such times do not compare.
    return max(one, two, key=datetime.timestamp)
