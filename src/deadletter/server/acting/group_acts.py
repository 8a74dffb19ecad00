"""Acts on groups: set how they stand, merge, split, and take that back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, Conflict, DeadLetterError
from deadletter.core.grouping import SAID
from deadletter.core.letter import GroupStatus
from deadletter.office.groups import GroupLine, Regrouped
from deadletter.server.auth.guards import check_role
from deadletter.server.context import ServerContext

MOST: Final = 500
"""Groups of one act."""

Said: TypeAlias = Literal["ongoing", "snoozed", "resolved", "muted"]
ShortText: TypeAlias = Annotated[str, Meta(max_length=200)]


class StatusChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new status of a group."""

    status: Said
    until: Annotated[datetime, Meta(tz=True)] | None = None  # of a snooze
    version: ShortText = ""  # resolved from this version on
    owner: ShortText | None = None  # "" removes the owner
    note: Annotated[str, Meta(max_length=4_000)] | None = None  # instead of the reason
    reason: Annotated[str, Meta(max_length=4_000, description="Why; recorded in the audit.")] = ""


class Stood(Struct, frozen=True):
    """A group as it was before an act, and as it is after it."""

    before: GroupLine
    after: GroupLine


class GroupsChanged(Struct, frozen=True, kw_only=True):
    """The groups that an act changed, and why others stayed as they were, by name."""

    changed: tuple[Stood, ...]
    left: dict[str, str]


async def set_standing(
    context: ServerContext, who: Identity, name: str, change: StatusChange
) -> GroupLine:
    """Set the status of a group, by its fingerprint or the beginning of it."""
    check_role(who, Role.OPERATOR)
    _check_until(context, change)
    return await _set(context, who, name, change)


async def set_standings(
    context: ServerContext, who: Identity, names: Sequence[str], change: StatusChange
) -> GroupsChanged:
    """Set the status of several groups; each is an act of its own in the audit."""
    check_role(who, Role.OPERATOR)
    _check_until(context, change)
    changed: list[Stood] = []
    left: dict[str, str] = {}
    for name in _distinct(names):
        try:
            before = await context.office.groups.get(name, sources=who.sources)
            after = await _set(context, who, before.fingerprint, change)
        except DeadLetterError as error:
            left[name] = str(error)
        else:
            changed.append(Stood(before, after))
    return GroupsChanged(changed=tuple(changed), left=left)


async def assign_groups(
    context: ServerContext, who: Identity, names: Sequence[str], owner: str, *, reason: str = ""
) -> GroupsChanged:
    """
    Set the owner of groups; an empty one is nobody.

    The status stays. Only a group that is new or regressed becomes ongoing: somebody has it.
    """
    check_role(who, Role.OPERATOR)
    changed: list[Stood] = []
    left: dict[str, str] = {}
    for name in _distinct(names):
        try:
            before = await context.office.groups.get(name, sources=who.sources)
            change = _back_to(before, owner=owner, note=None, reason=reason)
            after = await _set(context, who, before.fingerprint, change)
        except DeadLetterError as error:
            left[name] = str(error)
        else:
            changed.append(Stood(before, after))
    return GroupsChanged(changed=tuple(changed), left=left)


async def take_back(context: ServerContext, who: Identity, stood: Sequence[Stood]) -> GroupsChanged:
    """
    Give groups the standing back that they had before an act.

    From new and regressed, which nobody can say, they become ongoing. A group that stands
    otherwise by now is left alone.
    """
    check_role(who, Role.OPERATOR)
    now = context.clock.now()
    changed: list[Stood] = []
    left: dict[str, str] = {}
    for before, after in ((one.before, one.after) for one in stood):
        name = after.fingerprint
        try:
            current = await context.office.groups.get(name, sources=who.sources)
            if current.fingerprint != name or _standing(current) != _standing(after):
                raise Conflict("it has changed meanwhile")
            change = _back_to(before, owner=before.owner or "", note=before.note, reason="undone")
            if change.until is not None and change.until <= now:
                change = StatusChange(status="ongoing", owner=change.owner, note=change.note)
            done = await _set(context, who, name, change)
        except DeadLetterError as error:
            left[name] = str(error)
        else:
            changed.append(Stood(current, done))
    return GroupsChanged(changed=tuple(changed), left=left)


async def merge_groups(
    context: ServerContext, who: Identity, into: str, others: Sequence[str], *, reason: str = ""
) -> Regrouped:
    """Merge other groups into one; new letters follow."""
    check_role(who, Role.OPERATOR)
    by = who.by(reason)
    return await context.office.groups.merge(into, others, by, sources=who.sources)


async def split_group(
    context: ServerContext, who: Identity, name: str, query: str, *, reason: str = ""
) -> Regrouped:
    """Move the letters of a group that a search finds to a group of their own."""
    check_role(who, Role.OPERATOR)
    return await context.office.groups.split(name, query, who.by(reason), sources=who.sources)


async def undo_grouping(
    context: ServerContext, who: Identity, name: str, *, reason: str = ""
) -> Regrouped:
    """Undo the last merge or split of a group, and move its letters back."""
    check_role(who, Role.OPERATOR)
    return await context.office.groups.undo(name, who.by(reason), sources=who.sources)


def _back_to(line: GroupLine, *, owner: str, note: str | None, reason: str) -> StatusChange:
    """Return the change that leads to the status of a line, as far as it can be said."""
    status = line.status if line.status in SAID else GroupStatus.ONGOING
    return StatusChange(
        status=status.value,  # type: ignore[arg-type]  # one of SAID
        until=line.until if status is GroupStatus.SNOOZED else None,
        version=line.version if status is GroupStatus.RESOLVED else "",
        owner=owner,
        note=note,
        reason=reason,
    )


def _standing(line: GroupLine) -> tuple[object, ...]:
    return line.status, line.since, line.owner, line.note, line.until, line.version


def _distinct(names: Sequence[str]) -> list[str]:
    found = list(dict.fromkeys(names))
    if not found:
        raise ConfigError("choose at least one group")
    if len(found) > MOST:
        raise ConfigError(f"choose at most {MOST} groups at once, got {len(found):,}")
    return found


def _check_until(context: ServerContext, change: StatusChange) -> None:
    if change.until is not None and change.until <= context.clock.now():
        raise ConfigError(f"`until` must be in the future, got {change.until.isoformat()}")


async def _set(context: ServerContext, who: Identity, name: str, change: StatusChange) -> GroupLine:
    return await context.office.groups.set_status(
        name,
        GroupStatus(change.status),
        who.by(change.reason),
        owner=change.owner,
        until=change.until,
        version=change.version,
        note=change.note,
        sources=who.sources,
    )
