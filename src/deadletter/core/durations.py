"""
Lengths of time as Go writes them: `30s`, `1h30m`, `1.5s`, `200ms`.

The queue server and its clients speak so. Elsewhere lengths of time are seconds.
"""

import re
from typing import Final

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the sign for micro
    "μs": 1_000,  # ...and the Greek letter, which Go reads as well
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
_PARTS: Final = re.compile(_PART, re.ASCII)
_WHOLE: Final = re.compile(rf"([-+]?)(0|(?:{_PART})+)", re.ASCII)
_LONGEST: Final = 2**63 - 1  # nanoseconds: what Go can count
_LETTERS: Final = 100  # nobody needs more to say how long something takes


def parse_duration(text: str) -> float:
    """Seconds; a ValueError says what was wrong with it."""
    found = _WHOLE.fullmatch(text) if len(text) <= _LETTERS else None
    if found is None:
        raise ValueError(f"not a duration: {text[:_LETTERS]!a}; write 30s, 5m or 1h30m")
    nanos = sum(float(n) * _UNITS[unit] for n, unit in _PARTS.findall(found[2]))
    if nanos > _LONGEST:
        raise ValueError(f"longer than anybody waits: {text!a}")
    return (-nanos if found[1] == "-" else nanos) / 1e9


def format_duration(seconds: float) -> str:
    """The shortest way to write so many seconds, to the nanosecond."""
    nanos = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and nanos else ""
    if nanos < _UNITS["s"]:
        return sign + _small(nanos)
    minutes, rest = divmod(nanos, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    said = f"{_decimal(rest, 9)}s"
    if hours or minutes:
        said = f"{minutes}m{said}"
    return f"{sign}{hours}h{said}" if hours else sign + said


def _small(nanos: int) -> str:
    if not nanos:
        return "0s"
    if nanos < _UNITS["us"]:
        return f"{nanos}ns"
    if nanos < _UNITS["ms"]:
        return f"{_decimal(nanos, 3)}µs"
    return f"{_decimal(nanos, 6)}ms"


def _decimal(value: int, places: int) -> str:
    whole, part = divmod(value, 10**places)
    return f"{whole}.{part:0{places}}".rstrip("0").rstrip(".")
