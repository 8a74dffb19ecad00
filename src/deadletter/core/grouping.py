"""
How groups stand: what people may say of one, and what a death makes of that.

All stores follow these rules.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .audit import act
from .errors import ConfigError
from .letter import AuditEntry, By, Group, GroupStatus, LetterHead, Standing
from .paging import group_place, place_of_group
from .versions import Seen, compare

HIDDEN: Final = frozenset({GroupStatus.SNOOZED, GroupStatus.MUTED})
"""Somebody knows and does not want to be told: not listed unless asked for."""

SAID: Final = frozenset(GroupStatus) - {GroupStatus.NEW, GroupStatus.REGRESSED}
"""What a person can say of a group; the others come about by themselves."""

_PLACE: Final = ("open", "total", "last_seen", "fingerprint")  # paging.GroupPlace
LONGEST_NOTE: Final = 4_000
_LONGEST_NAME: Final = 200


class Asked(Struct, frozen=True, kw_only=True):
    """Which groups somebody asks for, and in which order."""

    source: str | None
    only_open: bool
    statuses: frozenset[GroupStatus] | None
    named: str
    largest_first: bool
    after: str | None
    limit: int
    now: datetime

    @property
    def order(self) -> tuple[str, ...]:
        """What groups are ordered by, the most first; no two are alike in it."""
        return _PLACE[0 if self.largest_first else -2 :]

    @property
    def start(self) -> tuple[int | datetime | str, ...] | None:
        """Only groups that come behind this in that order; None is all of them."""
        if self.after is None:
            return None
        return group_place(self.after)[-len(self.order) :]

    def place(self, group: Group) -> tuple[int | datetime | str, ...]:
        """Where a group stands in that order."""
        return place_of_group(group)[-len(self.order) :]


def check_standing(standing: Standing) -> None:
    """Refuse what nobody can mean."""
    if standing.status not in SAID:
        raise ConfigError(
            f"{standing.status} comes about by itself: say one of"
            f" {', '.join(sorted(SAID))}"
        )
    if (standing.status is GroupStatus.SNOOZED) != (standing.until is not None):
        raise ConfigError("a group is snoozed until some time, and nothing else is")
    if len(standing.note) > LONGEST_NOTE:
        raise ConfigError(f"a note has at most {LONGEST_NOTE:,} characters")
    if max(len(standing.owner or ""), len(standing.version)) > _LONGEST_NAME:
        raise ConfigError(
            f"an owner or a version has at most {_LONGEST_NAME} characters"
        )


def as_of(standing: Standing, now: datetime) -> Standing:
    """How a group stands now: a snooze that is over makes it ongoing again."""
    if standing.until is None or standing.until > now:
        return standing
    return replace(standing, status=GroupStatus.ONGOING, until=None)


def regresses(standing: Standing, deaths: Iterable[LetterHead], seen: Seen) -> bool:
    """
    Whether these deaths show that a resolved group is not resolved.

    They do if one came after it was said, in a version that should have been
    better. A version whose order is not known counts as one that should.
    """
    if standing.status is not GroupStatus.RESOLVED:
        return False
    return any(
        (standing.since is None or head.dead_at > standing.since)
        and not _is_older(head, standing.version, seen)
        for head in deaths
    )


def versions_to_compare(
    standings: Mapping[str, Standing], deaths: Iterable[LetterHead]
) -> list[tuple[str, str]]:
    """Name the versions, by source, whose first appearance `regresses` has to know."""
    wanted: dict[tuple[str, str], None] = {}
    for head in deaths:
        standing = standings.get(head.fingerprint)
        if standing is None or standing.status is not GroupStatus.RESOLVED:
            continue
        versions = head.version, standing.version
        if all(versions) and compare(*versions, head.source, {}) is None:
            wanted |= dict.fromkeys((head.source, version) for version in versions)
    return list(wanted)


def regressed(standing: Standing, now: datetime) -> Standing:
    """How a group stands that was resolved and died again; who has it, stays."""
    return replace(standing, status=GroupStatus.REGRESSED, since=now)


def said(old: Standing, new: Standing) -> str:
    """A change of standing in words, for the audit."""
    words = [f"{old.status} to {new.status}"]
    if new.version:
        words.append(f"in {new.version}")
    if new.until is not None:
        words.append(f"until {new.until:%Y-%m-%d %H:%M} UTC")
    if new.owner != old.owner:
        words.append(f"owner {new.owner or 'nobody'}")
    return ", ".join(words)


def blanked(fingerprint: str, by: By, *, at: datetime) -> AuditEntry:
    """
    The act of deleting what a group says of its letters, for the audit.

    That is due when the last of them is deleted: the error text, the frame and the
    code came out of them. The name of the error stays, and so does what people said.
    """
    return act("blank", fingerprint, by, at=at, detail="its last letter is gone")


def _is_older(head: LetterHead, than: str, seen: Seen) -> bool:
    order = compare(head.version, than, head.source, seen)
    return order is not None and order < 0
