"""Groups of letters with the same cause: listing, status, merging and splitting."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.failure import Trouble
from deadletter.core.failure.fingerprint import of_head, split_name
from deadletter.core.grouping import (
    HIDDEN,
    GroupRule,
    Regrouping,
    Rules,
    StatusCount,
    is_overflow,
    merged_into,
    overflow_of,
    target_of,
)
from deadletter.core.letter import By, DeadLetter, Group, GroupStatus, Standing, still_open
from deadletter.core.query.ast import Node, Term, leaves
from deadletter.core.query.parse import first_word, parse, show
from deadletter.core.query.search_step import group_cursor, place_of_group
from deadletter.ports import Clock, LetterStore

from .regrouping import BATCH, letters_of, obey_rules

_ALIKE: Final = 100  # groups among which one of exactly a name is looked for
LISTED: Final = frozenset(GroupStatus) - HIDDEN


class GroupLine(Struct, frozen=True, kw_only=True):
    """A group in a list; `share` is its part of all open letters."""

    fingerprint: str
    source: str
    error_type: str
    text: str
    frame: str
    trouble: Trouble
    code: str
    status: GroupStatus
    since: datetime | None
    owner: str | None
    note: str
    until: datetime | None
    version: str
    first_seen: datetime
    last_seen: datetime
    open: int  # letters
    total: int  # deaths: a letter that died twice counts twice
    share: float
    overflow: bool = False  # too many different texts: their letters are in one group


class GroupOrder(StrEnum):
    """The orders of a list of groups."""

    LARGEST = "largest"  # most open letters first
    LATEST = "latest"  # latest death first


class GroupPage(Struct, frozen=True):
    """A page of groups; `after` continues it in the same order."""

    groups: tuple[GroupLine, ...]
    after: str | None = None


async def list_groups(
    store: LetterStore,
    *,
    source: str | None = None,
    sources: Sequence[str] = (),
    status: GroupStatus | None = None,
    everything: bool = False,
    text: str = "",
    order: GroupOrder = GroupOrder.LARGEST,
    limit: int = 100,
    after: str | None = None,
) -> GroupPage:
    """
    Return groups, by default those with most open letters first.

    By default these are groups with open letters that are neither snoozed nor muted; with a
    status, all of that status. With `source` or `sources`, only groups of these mailboxes; with
    `text`, only those whose error, place, code or owner contains it.
    """
    largest_first = order is GroupOrder.LARGEST
    statuses = None if everything else LISTED
    found = [
        group
        for name in ((source,) if source is not None else sources or (None,))
        for group in await store.groups(
            source=name,
            only_open=not everything and status is None,
            statuses=statuses if status is None else frozenset({status}),
            text=text,
            largest_first=largest_first,
            limit=limit + 1,  # is there more?
            after=after,
        )
    ]
    found.sort(key=lambda one: place_of_group(one)[0 if largest_first else 2 :], reverse=True)
    opened = await _open(store, source)
    return GroupPage(
        tuple(_line(group, opened) for group in found[:limit]),
        group_cursor(found[limit - 1]) if len(found) > limit else None,
    )


class GroupCounts(Struct, frozen=True, kw_only=True):
    """The number of groups by status, and of those that a list shows by default."""

    listed: int  # with open letters, neither snoozed nor muted
    total: int
    statuses: dict[GroupStatus, int]


async def count_groups(store: LetterStore, *, sources: Sequence[str] = ()) -> GroupCounts:
    """Count groups by status; with `sources`, only groups of these mailboxes."""
    counts = await store.group_counts(sources)
    none = StatusCount(0)
    return GroupCounts(
        listed=sum(counts.get(status, none).open for status in LISTED),
        total=sum(count.groups for count in counts.values()),
        statuses={status: counts.get(status, none).groups for status in GroupStatus},
    )


async def get_group(store: LetterStore, name: str, *, sources: Sequence[str] = ()) -> Group:
    """
    Return one group, by its fingerprint or the beginning of it.

    Raises NotFound if there is none, and Conflict with their names if several match. With
    `sources`, groups of other mailboxes are treated as missing.
    """
    bare = name.strip().removeprefix("group:").removesuffix("*")
    if not bare:
        raise NotFound("say which group: `dlq groups` shows their names")
    found = [
        group
        for source in sources or (None,)
        for group in await store.groups(source=source, only_open=False, named=bare, limit=_ALIKE)
    ]
    exact = [group for group in found if group.fingerprint == bare]
    if not found:
        if (successor := await _successor(store, bare, sources)) is not None:
            return successor
        became = [] if sources else await _became(store, bare)
        if became:
            raise NotFound(f"group {bare} is gone: {', '.join(became[-3:])}")
        raise NotFound(f"there is no group {bare[:40]!r}; `dlq groups --all` shows all")
    if len(found) > 1 and not exact:
        some = ", ".join(group.fingerprint for group in found[:3])
        raise Conflict(f"several groups begin with {bare}: {some}; give more of it")
    return (exact or found)[0]


async def _successor(store: LetterStore, name: str, sources: Sequence[str]) -> Group | None:
    """Return the group that all letters of one that is gone belong to now."""
    rules = await store.group_rules()
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        to = {merged_into(name, rules)} - {name}
        to = to or {detail.rpartition(" to ")[2] for detail in await _became(store, name)}
        if len(to) != 1:
            return None
        (name,) = to
        found = await store.groups(only_open=False, named=name, limit=1)
        if found and found[0].fingerprint == name:
            return found[0] if not sources or found[0].source in sources else None
    return None


async def _became(store: LetterStore, name: str) -> list[str]:
    entries = await store.audit(target=name)
    return [one.detail for one in entries if one.action == "regroup"]


async def line_of(store: LetterStore, name: str, *, sources: Sequence[str] = ()) -> GroupLine:
    """Return one group as a list shows it."""
    group = await get_group(store, name, sources=sources)
    return _line(group, await _open(store, None))


async def say(
    store: LetterStore,
    clock: Clock,
    name: str,
    status: GroupStatus,
    by: By,
    *,
    owner: str | None = None,
    until: datetime | None = None,
    version: str = "",
    note: str | None = None,
) -> Group:
    """
    Set the standing of a group; its owner stays unless `owner` is given.

    The reason becomes the group's note unless `note` is given; without both, it stays. A
    resolved group becomes `regressed` when a letter dies of it later, in `version` or a newer
    one if that is given.
    """
    group = await get_group(store, name)
    standing = Standing(
        status=status,
        since=clock.now(),
        owner=group.standing.owner if owner is None else owner.strip() or None,
        note=(by.reason.strip() or group.standing.note) if note is None else note.strip(),
        until=until,
        version=version.strip(),
    )
    await store.set_group(group.fingerprint, standing, by)
    return replace(group, standing=standing)


async def _open(store: LetterStore, source: str | None) -> int:
    counts = await store.counts()
    return sum(still_open(states) for name, states in counts.items() if source in (None, name))


def _line(group: Group, everything: int) -> GroupLine:
    standing = group.standing
    return GroupLine(
        fingerprint=group.fingerprint,
        source=group.source,
        error_type=group.error_type,
        text=group.text,
        frame=group.frame,
        trouble=group.trouble,
        code=group.code,
        status=standing.status,
        since=standing.since,
        owner=standing.owner,
        note=standing.note,
        until=standing.until,
        version=standing.version,
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        open=group.open,
        total=group.total,
        share=group.open / everything if everything else 0.0,
        overflow=is_overflow(group.fingerprint),
    )


# Groups merged and split by people, for existing and new letters.
# The rule is stored before the letters move, so that letters that die meanwhile follow
# it. Both can be undone.

LASTING: Final = frozenset(
    {"error", "text", "code", "trouble", "category", "reason", "version", "consumer"}
    | {"key", "business_key", "header", "body"}
)
"""Fields that a group can be split by: their values do not change."""


class Regrouped(Struct, frozen=True, kw_only=True):
    """The target group of moved letters, and their number."""

    group: str
    moved: int


class RuleLine(Struct, frozen=True, kw_only=True):
    """A merge or a split that new letters follow; without a query, it is a merge."""

    group: str
    target: str
    query: str
    actor: str
    at: str


async def merge_groups(
    store: LetterStore,
    clock: Clock,
    into: str,
    others: Sequence[str],
    by: By,
    *,
    sources: Sequence[str] = (),
) -> Regrouped:
    """Merge several groups: letters of the others move `into` the first."""
    if not others:
        raise ConfigError("only one group is named: name those to merge into it as well")
    target = await get_group(store, into, sources=sources)
    joining = [await get_group(store, name, sources=sources) for name in others]
    for group in joining:
        if group.fingerprint == target.fingerprint:
            raise ConfigError(f"{group.fingerprint} is named twice: name other groups")
        if group.source != target.source:
            raise Conflict(
                f"{group.fingerprint} is of {group.source!r} and {target.fingerprint}"
                f" of {target.source!r}: only groups of one mailbox can be merged"
            )
    moved = 0
    for group in joining:
        name = group.fingerprint
        rule = GroupRule(target=target.fingerprint, at=clock.now(), actor=by.actor)
        rules = await store.group_rules()
        if merged_into(target.fingerprint, rules) == name:
            raise Conflict(f"{target.fingerprint} is merged into {name}: undo that first")
        detail = f"merged into {rule.target}"
        await store.set_group_rules(name, [rule, *rules.get(name, ())], by, detail)
        rules = await store.group_rules()
        while some := await obey_rules(store, name, rules, by, BATCH):
            moved += some
    return Regrouped(group=target.fingerprint, moved=moved)


async def split_group(
    store: LetterStore, clock: Clock, name: str, query: str, by: By, *, sources: Sequence[str] = ()
) -> Regrouped:
    """Move letters that a search finds to a group of their own."""
    node = check_split(query)
    group = await get_group(store, name, sources=sources)
    said = show(node)
    rules = await store.group_rules()
    target = split_name(group.fingerprint, said)
    known = rules.get(group.fingerprint, ())
    if all(rule.target != target for rule in known):
        rule = GroupRule(target=target, query=said, at=clock.now(), actor=by.actor)
        detail = f"split: {said} to {target}"
        await store.set_group_rules(group.fingerprint, [rule, *known], by, detail)
    moved = await _move_all(store, group.fingerprint, target, node, by)
    return Regrouped(group=target, moved=moved)


async def undo_grouping(
    store: LetterStore, name: str, by: By, *, sources: Sequence[str] = ()
) -> Regrouped:
    """
    Undo the last merge or split of a group; its letters move back.

    A group is named by itself, or by the group that was split off it.
    """
    rules = await store.group_rules()
    group, rule = _last_rule(name, rules)
    await _check_source(store, rule.target, sources)
    left = [one for one in rules[group] if one is not rule]
    detail = f"undone: {rule.query or 'merged'} to {rule.target}"
    await store.set_group_rules(group, left, by, detail)
    if rule.query:
        moved = await _move_all(store, rule.target, group, None, by)
    else:
        moved = await _take_back(store, group, rule.target, by)
    return Regrouped(group=group, moved=moved)


async def list_rules(store: LetterStore, *, sources: Sequence[str] = ()) -> list[RuleLine]:
    """Return the merges and splits that new letters follow."""
    lines = []
    for name, rules in sorted((await store.group_rules()).items()):
        for rule in rules:
            if not sources or await _is_of(store, rule.target, sources):
                at = rule.at.isoformat()
                line = RuleLine(
                    group=name, target=rule.target, query=rule.query, actor=rule.actor, at=at
                )
                lines.append(line)
    return lines


def check_split(query: str) -> Node:
    """Return the search of a text, if a group can be split by it."""
    node = parse(query)
    if not any(True for _ in leaves(node)):  # empty, or * for all of them
        raise ConfigError(
            "say which letters to split off, by a search such as version:2.0 or text:timeout"
        )
    if (word := first_word(node)) is not None:
        raise ConfigError(
            f"{word.text!r} is a text without a field, which any part of a letter may"
            f" contain: name the field, as in text:{word.text} for the error text or"
            " body.order.country:NO"
        )
    for term in leaves(node):
        if isinstance(term, Term) and term.field not in LASTING:
            raise ConfigError(
                f"{term.field}: changes while a letter is here, so no group can be"
                f" split by it: use {', '.join(sorted(LASTING))}"
            )
    return node


async def _move_all(store: LetterStore, old: str, new: str, node: Node | None, by: By) -> int:
    moved = 0
    while heads := await letters_of(store, old, BATCH, node):
        ids = tuple(head.id for head in heads)
        some = await store.regroup([Regrouping(old=old, new=new, ids=ids)], by)
        if not some:
            break
        moved += some
    return moved


async def _take_back(store: LetterStore, group: str, target: str, by: By) -> int:
    """
    Move back the letters whose own fingerprint is that of the group.

    Letters whose cause the application named stay: it cannot be computed here.
    """
    moved = 0
    rules = await store.group_rules()
    after: str | None = None
    while True:
        page = await store.find(parse(f'group:"{target}"'), limit=BATCH, after=after)
        letters = await store.get([head.id for head in page.heads])
        ids = tuple(one.id for one in letters if _belongs(one, group, target, rules))
        if ids:
            move = Regrouping(old=target, new=group, ids=ids)
            moved += await store.regroup([move], by)
        if page.after is None:
            return moved
        after = page.after


def _belongs(letter: DeadLetter, group: str, target: str, rules: Rules) -> bool:
    own = of_head(letter.head, letter.frame)
    bare = of_head(letter.head, letter.frame.partition("#")[0])
    named = replace(letter, head=replace(letter.head, fingerprint=own))
    now = target_of(named, rules)
    if group == overflow_of(letter):
        return now != target
    return group in (own, bare, now)


def _last_rule(name: str, rules: Rules) -> tuple[str, GroupRule]:
    bare = name.strip().removeprefix("group:").removesuffix("*")
    found = [
        (group, some[0]) for group, some in rules.items() if bare and group.startswith(bare)
    ] or [
        (group, rule)
        for group, some in rules.items()
        for rule in some
        if bare and rule.query and rule.target.startswith(bare)
    ]
    if not found:
        raise NotFound(
            f"nothing was merged or split by the name {bare[:40]!r}:"
            " `dlq groups rules` shows what was"
        )
    if len(found) > 1:
        some = ", ".join(group for group, _ in found[:3])
        raise Conflict(f"several groups begin with {bare}: {some}; give more of it")
    return found[0]


async def _check_source(store: LetterStore, name: str, sources: Sequence[str]) -> None:
    if sources and not await _is_of(store, name, sources):
        raise NotFound(f"there is no group {name}; `dlq groups --all` shows all")


async def _is_of(store: LetterStore, name: str, sources: Sequence[str]) -> bool:
    found = await store.groups(only_open=False, named=name, limit=1)
    return any(group.source in sources for group in found)
