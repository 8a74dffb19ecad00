"""Groups in words: what they are called, where they are, and how they stand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from deadletter.core.failure import Trouble
from deadletter.core.letter import GroupStatus, error_name
from deadletter.core.text import clean, cut, many
from deadletter.server.acting.group_acts import GroupsChanged

LONGEST: Final = 300
"""Characters of an error text on a page with many of them."""
NAME: Final = 160
"""Characters of a name: a mailbox, an owner, a version."""

_NOT_SET: Final = "which follows from deaths alone"
_BY_ITSELF: Final = f"new or regressed, {_NOT_SET}"


class Known(Protocol):
    """The part of a group, or of its line, that sentences are about."""

    @property
    def error_type(self) -> str:
        """The type of the error, with its module."""

    @property
    def text(self) -> str:
        """The text of the latest error."""


def error_of(group: Known) -> str:
    """Return the name of the error without its module."""
    return cut(error_name(group.error_type) or "Failure", NAME)


def place_of(frame: str) -> str:
    """Return the frame of a group without the digest of its line; empty if it is unknown."""
    return cut(frame.partition("#")[0], NAME)


def trouble_of(trouble: Trouble, code: str) -> str:
    """Return what kind of trouble it is, and its code."""
    return cut(f"{trouble} {code}".strip(), NAME)


def versions_told(versions: Sequence[str]) -> str:
    """Return the versions of a group, the one with the latest death first, in a few words."""
    if not versions:
        return ""
    if len(versions) == 1:
        return f"version {cut(versions[0], NAME)}"
    newest, oldest = cut(versions[0], NAME), cut(versions[-1], NAME)
    if len(versions) == 2:
        return f"versions {oldest} and {newest}"
    return f"versions {oldest} to {newest}, {len(versions)} in all"


def standing_told(
    status: GroupStatus, *, until: datetime | None, version: str, now: datetime
) -> str:
    """Return what belongs to a status: the end of a snooze, the version of a fix."""
    if status is GroupStatus.SNOOZED and until is not None:
        return f"until {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if until > now else ""
    if status is GroupStatus.RESOLVED and version:
        return f"in {cut(version, NAME)}"
    if status is GroupStatus.REGRESSED and version:
        return f"was resolved in {cut(version, NAME)}"
    return ""


def headline(opened: int, problems: int) -> str:
    """Return the sentence that answers how bad it is."""
    if not opened:
        return "No open letters"
    return f"{many(opened, 'open letter')}, {many(problems, 'problem')}"


def changed_told(done: GroupsChanged, what: str) -> str:
    """Return what an act changed, and what it left alone and why."""
    if len(done.changed) == 1:
        line = done.changed[0].after
        parts = [f"{error_of(line)} in {cut(line.source, NAME)} {what}."]
    else:
        parts = [f"{many(len(done.changed), 'group')} {what.replace('is ', 'are ', 1)}."]
    return " ".join([*parts, *_left_told(done)])


def taken_back_told(done: GroupsChanged, came_by_itself: int) -> str:
    """Return what taking an act back changed; of these groups, some were new or regressed."""
    count = len(done.changed)
    if not count:
        text = "Nothing was undone."
    elif not came_by_itself:
        text = f"Undone: {many(count, 'group')} {'stands' if count == 1 else 'stand'} as before."
    elif came_by_itself == count:
        are, were = ("is", "it was") if count == 1 else ("are", "they were")
        text = f"Undone: {many(count, 'group')} {are} ongoing, because {were} {_BY_ITSELF}."
    else:
        are = "is" if came_by_itself == 1 else "are"
        text = (
            f"Undone: {many(count, 'group')} stand as before, but {came_by_itself:,} {are} ongoing:"
            f" new or regressed before, {_NOT_SET}."
        )
    return " ".join([text, *_left_told(done)])


def _left_told(done: GroupsChanged) -> list[str]:
    if not done.left:
        return []
    reasons = dict.fromkeys(clean(cut(one, LONGEST)) for one in done.left.values())
    were = "was" if len(done.left) == 1 else "were"
    return [f"{many(len(done.left), 'group')} {were} left alone: {'; '.join(list(reasons)[:3])}."]
