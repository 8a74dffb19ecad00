"""
Letters that change their group: by a new version of fingerprints, or by people.

All stores follow these rules. What was said of a group moves along with its letters:
a group that becomes several leaves its standing to each of them. Where several become
one, `combined` decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .fingerprint import current
from .grouping import LONGEST_NOTE
from .letter import DeadLetter, Group, GroupStatus, LetterHead, Standing
from .query.match import matches
from .query.parse import parse

_MOST_STEPS: Final = 16  # from rule to rule; a circle ends there
# The more attention a status asks for, the further in front it is.
_ATTENTION: Final = (
    *(GroupStatus.REGRESSED, GroupStatus.NEW, GroupStatus.ONGOING),
    *(GroupStatus.RESOLVED, GroupStatus.SNOOZED, GroupStatus.MUTED),
)


class Regrouping(Struct, frozen=True, kw_only=True):
    """Letters that leave one group for another; those that left already stay away."""

    old: str
    new: str
    ids: tuple[str, ...]


class GroupRule(Struct, frozen=True, kw_only=True):
    """What people said of a group: letters like this belong to another one."""

    target: str
    query: str = ""  # empty: all of them, the groups are merged
    at: datetime
    actor: str


Rules: TypeAlias = Mapping[str, Sequence[GroupRule]]
"""By the group they are about, the latest first."""


def placed(
    letters: Iterable[DeadLetter], rules: Rules | None
) -> tuple[list[DeadLetter], frozenset[str]]:
    """Letters in the groups they belong to; those groups that people named."""
    own = [current(letter) for letter in letters]
    if not rules:
        return own, frozenset()
    there = followed(own, rules)
    pairs = zip(own, there, strict=True)
    return there, frozenset(
        [after.head.fingerprint for before, after in pairs if after is not before]
    )


def followed(letters: Iterable[DeadLetter], rules: Rules) -> list[DeadLetter]:
    """Letters in the groups that people said they belong to."""
    return [_followed(letter, rules) for letter in letters] if rules else list(letters)


def target_of(letter: DeadLetter, rules: Rules, name: str = "") -> str:
    """The group that people said a letter of this one belongs to; else the same."""
    name = name or letter.head.fingerprint
    for _ in range(_MOST_STEPS):
        target = next(
            (
                rule.target
                for rule in rules.get(name, ())
                if not rule.query
                or matches(parse(rule.query), letter, now=letter.head.dead_at)
            ),
            name,
        )
        if target == name:
            break
        name = target
    return name


def merged_into(name: str, rules: Rules) -> str:
    """The group that all letters of a group belong to, by merges alone."""
    seen = set()
    while name not in seen:
        seen.add(name)
        whole = [rule.target for rule in rules.get(name, ()) if not rule.query]
        name = whole[0] if whole else name
    return name


def told(moved: int, move: Regrouping) -> str:
    """A change of group in words, for the audit."""
    return f"{moved} {'letter' if moved == 1 else 'letters'} to {move.new}"


def joined(
    old: Group, new: Group | None, heads: Sequence[LetterHead], *, is_last: bool
) -> Group:
    """
    The group that letters of an old one have joined.

    With the last of them it takes over what else the old one counted: deaths of
    letters that are gone, and when it was first seen.
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


def deaths_moved(
    move: Regrouping, before: Group | None, after: Group
) -> dict[str, int]:
    """How many deaths more or less each of two groups counts after letters moved."""
    moved = after.total - (0 if before is None else before.total)
    return {move.old: -moved, move.new: moved}


def combined(one: Group, other: Group) -> Standing:
    """
    How two groups stand that become one.

    The later word counts if it came after the last death in the other group: who said
    it knew of all of them. Else the status counts that asks for more attention, so
    that nothing is hidden that nobody wanted hidden. Owner and note are kept.
    """
    said = sorted((one, other), key=lambda group: _time(group.standing))
    late, early = said[1].standing, said[0]
    if late.since is not None and late.since >= early.last_seen:
        winner, loser = late, early.standing
    else:
        ranked = sorted(
            (one.standing, other.standing), key=lambda s: _ATTENTION.index(s.status)
        )
        winner, loser = ranked
    notes = dict.fromkeys(note for note in (winner.note, loser.note) if note)
    if loser.note and loser.note in winner.note:
        notes = {winner.note: None}
    return replace(
        winner,
        owner=winner.owner or loser.owner,
        note="\n".join(notes)[:LONGEST_NOTE],
    )


def _followed(letter: DeadLetter, rules: Rules) -> DeadLetter:
    name = target_of(letter, rules)
    if name == letter.head.fingerprint:
        return letter
    return replace(letter, head=replace(letter.head, fingerprint=name))


def _time(standing: Standing) -> float:
    return 0.0 if standing.since is None else standing.since.timestamp()
