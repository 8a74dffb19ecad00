"""
Rules of groups: their status, the limit of new ones, and letters that change groups.

All stores follow these rules.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.query.match import matches
from deadletter.core.query.parse import parse

from .audit import act
from .deaths import DeathLimit
from .errors import ConfigError
from .failure.fingerprint import OLD, current
from .letter import AuditEntry, By, DeadLetter, Group, GroupStatus, LetterHead, Standing
from .query.fields import fold
from .query.search_step import group_place, place_of_group
from .query.versions import Seen, compare

HIDDEN: Final = frozenset({GroupStatus.SNOOZED, GroupStatus.MUTED})
"""Statuses that are not listed unless asked for."""

SAID: Final = frozenset(GroupStatus) - {GroupStatus.NEW, GroupStatus.REGRESSED}
"""The states that a person can set; the other states follow from events."""

SEARCHED: Final = ("error_type", "text", "frame", "code", "owner")
"""The fields of a group and its standing that a search for a text looks into."""

_PLACE: Final = ("open", "total", "last_seen", "fingerprint")  # as in GroupPlace
LONGEST_NOTE: Final = 4_000
_LONGEST_NAME: Final = 200


class StatusCount(Struct, frozen=True):
    """The number of groups of one status, and of those with open letters."""

    groups: int
    open: int = 0


class Asked(Struct, frozen=True, kw_only=True):
    """A request for a list of groups: filters, order and place."""

    source: str | None
    only_open: bool
    statuses: frozenset[GroupStatus] | None
    named: str
    text: str
    largest_first: bool
    after: str | None
    limit: int
    now: datetime

    @property
    def order(self) -> tuple[str, ...]:
        """Return the fields that groups are ordered by, descending; together they are unique."""
        return _PLACE[0 if self.largest_first else -2 :]

    @property
    def start(self) -> tuple[int | datetime | str, ...] | None:
        """The place after which the list continues; None: from the beginning."""
        if self.after is None:
            return None
        return group_place(self.after)[-len(self.order) :]

    @property
    def pattern(self) -> str:
        """The text that `SEARCHED` must contain, folded; empty: any."""
        return fold(self.text.strip())

    def place(self, group: Group) -> tuple[int | datetime | str, ...]:
        """Return the place of a group in this order."""
        return place_of_group(group)[-len(self.order) :]


def mentions(group: Group, pattern: str) -> bool:
    """Return whether a field of the group contains a text, see `Asked.pattern`."""
    fields = (group.error_type, group.text, group.frame, group.code, group.standing.owner or "")
    return any(pattern in fold(one) for one in fields)


def check_standing(standing: Standing) -> None:
    """Reject an invalid standing."""
    if standing.status not in SAID:
        raise ConfigError(
            f"a group cannot be set to {standing.status}, which follows from events:"
            f" use one of {', '.join(sorted(SAID))}"
        )
    if (standing.status is GroupStatus.SNOOZED) != (standing.until is not None):
        raise ConfigError("a snoozed group needs `until`, and groups with another status have none")
    if len(standing.note) > LONGEST_NOTE:
        raise ConfigError(
            f"a note has {len(standing.note):,} characters: up to {LONGEST_NOTE:,} are allowed"
        )
    if max(len(standing.owner or ""), len(standing.version)) > _LONGEST_NAME:
        raise ConfigError(
            f"the owner or version is too long: up to {_LONGEST_NAME} characters are allowed"
        )


def as_of(standing: Standing, now: datetime) -> Standing:
    """Return the standing at `now`: a group whose snooze is over is ongoing again."""
    if standing.until is None or standing.until > now:
        return standing
    return replace(standing, status=GroupStatus.ONGOING, until=None)


def regresses(standing: Standing, deaths: Iterable[LetterHead], seen: Seen) -> bool:
    """
    Return whether these deaths show that a resolved group is not resolved.

    They do if one came after the group was resolved, in a version that should have the fix. A
    version of unknown order counts as one that should.
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
    """Return the versions, by source, whose first appearance `regresses` needs."""
    wanted: dict[tuple[str, str], None] = {}
    for head in deaths:
        standing = standings.get(head.fingerprint)
        if standing is None or standing.status is not GroupStatus.RESOLVED:
            continue
        versions = head.version, standing.version
        if all(versions) and compare(*versions, head.source, {}) is None:
            wanted |= dict.fromkeys((head.source, version) for version in versions)
    return list(wanted)


def groups_of(deaths: Iterable[DeadLetter]) -> list[Group]:
    """Return the groups of these deaths, as the deaths alone show them."""
    by_group: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for letter in deaths:
        by_group[letter.head.fingerprint].append(letter)
    found = []
    for name, letters in by_group.items():
        latest = letters[0]
        first = last = latest.head.dead_at
        if len(letters) > 1:
            times = [letter.head.dead_at for letter in letters]
            first, last = min(times), max(times)
            # Of several at the same moment, the one that came last.
            latest = max(reversed(letters), key=lambda letter: letter.head.dead_at)
        head = latest.head
        found.append(
            Group(
                fingerprint=name,
                source=letters[0].head.source,
                error_type=head.error_type,
                text=head.error_text,
                frame=latest.frame,
                trouble=head.trouble,
                code=head.code,
                first_seen=first,
                last_seen=last,
                counts={},
                total=len(letters),
            )
        )
    return found


def grown(group: Group | None, deaths: Group) -> Group:
    """Return a group as it is after more deaths; the latest death is the one it shows."""
    if group is None:
        return deaths
    latest = deaths if deaths.last_seen >= group.last_seen else group
    return replace(
        group,
        error_type=latest.error_type,
        text=latest.text,
        frame=latest.frame,
        trouble=latest.trouble,
        code=latest.code,
        first_seen=min(group.first_seen, deaths.first_seen),
        last_seen=latest.last_seen,
        total=group.total + deaths.total,
    )


def regressed(standing: Standing, now: datetime) -> Standing:
    """Return the standing of a resolved group that failed again; its owner stays."""
    return replace(standing, status=GroupStatus.REGRESSED, since=now)


def said(old: Standing, new: Standing) -> str:
    """Return a change of standing in words, for the audit."""
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
    Return the audit entry of clearing a group's error text, frame and code.

    They came from letters, so they are cleared when the last letter is deleted. The error's
    name and what people said of the group stay.
    """
    return act("blank", fingerprint, by, at=at, detail="its last letter is gone")


def _is_older(head: LetterHead, than: str, seen: Seen) -> bool:
    order = compare(head.version, than, head.source, seen)
    return order is not None and order < 0


# A limit of new groups per day, so that a flood of different error texts stays one
# problem. Letters beyond it go into one overflow group of their source, error type and
# frame. Stores apply it in the transaction that keeps the letters.

GROUPS_PER_DAY: Final = 200
OVERFLOW: Final = "overflow-"
"""The fingerprints of overflow groups begin with this."""

_REMEMBERED: Final = 20_000  # fingerprints of groups that are known to exist


class GroupLimit:
    """
    The limit of new groups per day, for each source, error type and frame.

    `deaths` limits the counters of deaths over time, which groups multiply as well. It
    remembers existing groups, so that a store is asked only about others.
    """

    def __init__(self, per_day: int = GROUPS_PER_DAY) -> None:
        self.per_day = per_day
        self.deaths = DeathLimit()
        self._there: dict[str, None] = {}

    def candidates(
        self, letters: Iterable[DeadLetter], named: Container[str] = ()
    ) -> dict[str, str]:
        """
        Return fingerprints that may be new, each with its overflow group.

        Groups that people `named` for some of the letters are not limited.
        """
        there = self._there
        unknown = {
            name: letter for letter in letters if (name := letter.head.fingerprint) not in there
        }
        return {
            name: overflow_of(letter)
            for name, letter in unknown.items()
            if name not in named and not is_overflow(name)
        }

    def remember(self, names: Iterable[str]) -> None:
        """Remember groups that exist."""
        self._there.update(dict.fromkeys(names))
        if (surplus := len(self._there) - _REMEMBERED) > 0:
            for name in list(islice(self._there, surplus)):
                del self._there[name]

    def divert(
        self, letters: Sequence[DeadLetter], new: Mapping[str, str], made: Mapping[str, int]
    ) -> tuple[list[DeadLetter], Counter[str]]:
        """
        Return the letters with their final fingerprints, and the number of new groups.

        `new` has the fingerprints without a group, each with its overflow group. `made` has the
        number of groups made today, by overflow group; so has the second result.
        """
        more: Counter[str] = Counter()
        stays: dict[str, bool] = {}
        kept: list[DeadLetter] = []
        for letter in letters:
            name = letter.head.fingerprint
            overflow = new.get(name)
            if overflow is None:
                kept.append(letter)
                continue
            if name not in stays:
                there = made.get(overflow, 0) + more[overflow]
                stays[name] = there < self.per_day
                more[overflow] += stays[name]
            if stays[name]:
                kept.append(letter)
            else:
                head = replace(letter.head, fingerprint=overflow)
                kept.append(replace(letter, head=head))
        return kept, +more


def overflow_of(letter: DeadLetter) -> str:
    """Return the fingerprint of a letter's overflow group."""
    return _overflow(letter.head.source, letter.head.error_type, letter.frame)


@lru_cache(maxsize=1024)  # a flood is of few kinds
def _overflow(*parts: str) -> str:
    told = "".join([f"{len(part)}:{part}" for part in parts])
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{OVERFLOW}{digest.hexdigest()}"


def is_overflow(fingerprint: str) -> bool:
    """Return whether a group is an overflow group."""
    return fingerprint.startswith(OVERFLOW)


def day_of(now: datetime) -> int:
    """Return the ordinal of the day, in UTC, that new groups count for."""
    return now.astimezone(UTC).toordinal()


# Letters change their group by a new version of fingerprints, or by people.
#
# The standing of a group moves along with its letters: a group that is split leaves it
# to each of its parts. For groups that are merged, `combined` decides.

_MOST_STEPS: Final = 16  # from rule to rule; this ends a cycle
# Statuses, those that need most attention first.
_ATTENTION: Final = (
    *(GroupStatus.REGRESSED, GroupStatus.NEW, GroupStatus.ONGOING),
    *(GroupStatus.RESOLVED, GroupStatus.SNOOZED, GroupStatus.MUTED),
)


class Regrouping(Struct, frozen=True, kw_only=True):
    """A move of letters from one group to another; letters that left `old` already stay."""

    old: str
    new: str
    ids: tuple[str, ...]


class GroupRule(Struct, frozen=True, kw_only=True):
    """A person's decision: matching letters of one group belong to another."""

    target: str
    query: str = ""  # empty: all of them, the groups are merged
    at: datetime
    actor: str


Rules: TypeAlias = Mapping[str, Sequence[GroupRule]]
"""Rules by the group they apply to, the latest first."""


def placed(
    letters: Iterable[DeadLetter], rules: Rules | None
) -> tuple[list[DeadLetter], frozenset[str]]:
    """Return letters with the fingerprints of their groups, and the groups named by rules."""
    own = [
        current(letter) if letter.head.fingerprint.startswith(OLD) else letter for letter in letters
    ]
    if not rules:
        return own, frozenset()
    there = followed(own, rules)
    pairs = zip(own, there, strict=True)
    return there, frozenset(
        [after.head.fingerprint for before, after in pairs if after is not before]
    )


def followed(letters: Iterable[DeadLetter], rules: Rules) -> list[DeadLetter]:
    """Return letters with the fingerprints of the groups that rules assign."""
    return [_followed(letter, rules) for letter in letters] if rules else list(letters)


def target_of(letter: DeadLetter, rules: Rules, name: str = "") -> str:
    """Return the group that rules assign to a letter of this one; the same if none do."""
    name = name or letter.head.fingerprint
    for _ in range(_MOST_STEPS):
        target = next(
            (
                rule.target
                for rule in rules.get(name, ())
                if not rule.query or matches(parse(rule.query), letter, now=letter.head.dead_at)
            ),
            name,
        )
        if target == name:
            break
        name = target
    return name


def merged_into(name: str, rules: Rules) -> str:
    """Return the group that all letters of a group belong to, by merges alone."""
    seen = set()
    while name not in seen:
        seen.add(name)
        whole = [rule.target for rule in rules.get(name, ()) if not rule.query]
        name = whole[0] if whole else name
    return name


def told(moved: int, move: Regrouping) -> str:
    """Return a change of group in words, for the audit."""
    return f"{moved} {'letter' if moved == 1 else 'letters'} to {move.new}"


def joined(old: Group, new: Group | None, heads: Sequence[LetterHead], *, is_last: bool) -> Group:
    """
    Return the group that letters of an old one have joined.

    With the last of them, it takes over what the old group still counts: the deaths of deleted
    letters, and when it was first seen.
    """
    latest = max(heads, key=lambda head: head.dead_at)
    first = min(head.dead_at for head in heads)
    total = old.total if is_last else min(len(heads), old.total)
    shown = {
        "error_type": latest.error_type,
        "text": latest.error_text,
        "frame": old.frame,
        "trouble": latest.trouble,
        "code": latest.code,
        "last_seen": latest.dead_at,
    }
    if is_last:
        first = min(first, old.first_seen)
    if new is None:
        return replace(old, first_seen=first, total=total, **shown)
    if latest.dead_at < new.last_seen:
        shown = {}
    return replace(
        new,
        first_seen=min(new.first_seen, first),
        total=new.total + total,
        standing=combined(new, old),
        **shown,
    )


def deaths_moved(move: Regrouping, before: Group | None, after: Group) -> dict[str, int]:
    """Return the change in the death counts of two groups after letters moved."""
    moved = after.total - (0 if before is None else before.total)
    return {move.old: -moved, move.new: moved}


def combined(one: Group, other: Group) -> Standing:
    """
    Return the standing of two groups that become one.

    The later decision wins if it came after the last death in the other group: it was made
    knowing all of them. Otherwise the status that needs more attention wins, so that nothing is
    hidden by accident. Owner and notes are kept.
    """
    said = sorted((one, other), key=lambda group: _time(group.standing))
    late, early = said[1].standing, said[0]
    if late.since is not None and late.since >= early.last_seen:
        winner, loser = late, early.standing
    else:
        ranked = sorted((one.standing, other.standing), key=lambda s: _ATTENTION.index(s.status))
        winner, loser = ranked
    notes = dict.fromkeys(note for note in (winner.note, loser.note) if note)
    if loser.note and loser.note in winner.note:
        notes = {winner.note: None}
    return replace(winner, owner=winner.owner or loser.owner, note="\n".join(notes)[:LONGEST_NOTE])


def _followed(letter: DeadLetter, rules: Rules) -> DeadLetter:
    name = target_of(letter, rules)
    if name == letter.head.fingerprint:
        return letter
    return replace(letter, head=replace(letter.head, fingerprint=name))


def _time(standing: Standing) -> float:
    return 0.0 if standing.since is None else standing.since.timestamp()
