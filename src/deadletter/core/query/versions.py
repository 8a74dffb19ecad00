"""
Order of application versions: by release number, by date, or by first appearance.

Two release numbers are compared as `packaging.version` does (`1.8` is `1.8.0`, and older than
`1.10`), two dates by date. All others, such as commit hashes, are compared by when each was
first seen at the mailbox. If that is unknown, so is their order: it is never guessed.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

from packaging.version import InvalidVersion, Version

from deadletter.core.letter import LetterHead

Seen: TypeAlias = Mapping[tuple[str, str], datetime]
"""The time at which each version was first seen, by source and version."""

_LONGEST: Final = 80  # characters of a release number; longer ones are compared by time
# Seven digits alone may be a hash or a build number.
_HASH: Final = re.compile(r"[0-9a-f]{7,64}", re.ASCII | re.IGNORECASE)
_DATE: Final = re.compile(
    r"[vV]?(\d{4})(?:([-.])(\d{1,2})\2(\d{1,2})|(\d\d)(\d\d))"
    r"(?:[T_.-]?(\d\d):?(\d\d)(?::?(\d\d))?Z?)?",
    re.ASCII,
)
_FIRST_YEAR: Final = 1990
_LAST_YEAR: Final = 2199


def compare(one: str, other: str, source: str, seen: Seen) -> int | None:
    """
    Return less than 0 if `one` is older than `other`, more if newer, 0 if the same.

    Returns None if their order is unknown.
    """
    if not one or not other:
        return None
    if one == other:
        return 0
    for read in (_date, _release):
        first, second = read(one), read(other)
        if first is not None and second is not None:
            return _order(first, second)
    began, ended = seen.get((source, one)), seen.get((source, other))
    if began is None or ended is None or began == ended:
        return None
    return _order(began, ended)


def has_own_order(version: str) -> bool:
    """Return whether a version is a date or a release number."""
    return _date(version) is not None or _release(version) is not None


def first_seen(deaths: Iterable[LetterHead]) -> dict[tuple[str, str], datetime]:
    """Return when each version first appears in these deaths."""
    found: dict[tuple[str, str], datetime] = {}
    for head in deaths:
        if head.version:
            name, at = (head.source, head.version), head.dead_at
            known = found.get(name)
            if known is None or at < known:
                found[name] = at
    return found


def _order(one: Any, other: Any) -> int:
    return 0 if one == other else -1 if one < other else 1


@lru_cache(maxsize=4_096)
def _release(version: str) -> Version | None:
    if len(version) > _LONGEST or _HASH.fullmatch(version):
        return None
    try:
        return Version(version)
    except InvalidVersion:
        return None


@lru_cache(maxsize=4_096)
def _date(version: str) -> datetime | None:
    found = _DATE.fullmatch(version)
    if found is None:
        return None
    parts = [int(part) for part in found.groups() if part and part.isdigit()]
    if not _FIRST_YEAR <= parts[0] <= _LAST_YEAR:
        return None
    try:
        return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:  # the 31st of June
        return None
