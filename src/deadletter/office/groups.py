"""Groups of letters with the same cause: listing, status, merging and splitting."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.failure import Trouble
from deadletter.core.failure.fingerprint import (
    OLD,
    VERSION,
    is_old,
    is_own_frame,
    of_head,
    split_name,
)
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
from deadletter.core.letter import (
    By,
    DeadLetter,
    Group,
    GroupStatus,
    LetterHead,
    Standing,
    still_open,
)
from deadletter.core.query.ast import All, Node, Op, Term, leaves
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import first_word, parse, show
from deadletter.core.query.search_step import group_cursor, place_of_group
from deadletter.ports import Clock, LetterStore

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


class GroupPage(Struct, frozen=True):
    """A page of groups, those with most open letters first; `after` continues it."""

    groups: tuple[GroupLine, ...]
    after: str | None = None


async def list_groups(
    store: LetterStore,
    *,
    source: str | None = None,
    sources: Sequence[str] = (),
    status: GroupStatus | None = None,
    everything: bool = False,
    limit: int = 100,
    after: str | None = None,
) -> GroupPage:
    """
    Return groups, those with most open letters first.

    By default these are groups with open letters that are neither snoozed nor muted; with a
    status, all of that status. With `source` or `sources`, only groups of these mailboxes.
    """
    statuses = None if everything else LISTED
    found = [
        group
        for name in ((source,) if source is not None else sources or (None,))
        for group in await store.groups(
            source=name,
            only_open=not everything and status is None,
            statuses=statuses if status is None else frozenset({status}),
            largest_first=True,
            limit=limit + 1,  # is there more?
            after=after,
        )
    ]
    found.sort(key=place_of_group, reverse=True)
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
        for group in await store.groups(source=source, only_open=False, named=bare, limit=4)
    ]
    exact = [group for group in found if group.fingerprint == bare]
    if not found:
        rules = {} if sources else await store.group_rules()
        if bare in rules and (target := merged_into(bare, rules)) != bare:
            return await get_group(store, target)
        gone = [] if sources else await store.audit(target=bare)
        if became := [one.detail for one in gone if one.action == "regroup"]:
            raise NotFound(f"group {bare} is gone: {', '.join(became[-3:])}")
        raise NotFound(f"there is no group {bare[:40]!r}; `dlq groups --all` shows all")
    if len(found) > 1 and not exact:
        some = ", ".join(group.fingerprint for group in found[:3])
        raise Conflict(f"several groups begin with {bare}: {some}; give more of it")
    return (exact or found)[0]


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
) -> Group:
    """
    Set the standing of a group; its owner stays unless `owner` is given.

    The reason becomes the group's note; without one, the note stays. A resolved group becomes
    `regressed` when a letter dies of it later, in `version` or a newer one if that is given.
    """
    group = await get_group(store, name)
    standing = Standing(
        status=status,
        since=clock.now(),
        owner=group.standing.owner if owner is None else owner.strip() or None,
        note=by.reason.strip() or group.standing.note,
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


# Regrouping after an upgrade, a batch at a time.
# Each batch is one transaction, and the rest is read from the office itself: a chore that
# is killed continues where it stopped. It also finishes interrupted merges.

BATCH: Final = 500  # letters in one transaction
_PAGE: Final = 500  # groups looked at in one go
_LATEST: Final = 1_000  # groups that letters without a line may belong to

CHORE: Final = By("dlq serve", f"fingerprint version {VERSION}")


async def regroup_some(store: LetterStore, by: By = CHORE, *, batch: int = BATCH) -> int:
    """Move a batch of letters to their groups; return the number moved, 0 at the end."""
    rules = await store.group_rules()
    for name in rules:
        is_merged = any(not rule.query for rule in rules[name])
        if is_merged and (moved := await obey_rules(store, name, rules, by, batch)):
            return moved
    for beginning in OLD:
        after: str | None = None
        while groups := await store.groups(
            only_open=False, named=beginning, limit=_PAGE, after=after
        ):
            for group in groups:
                has_old = group.counts and is_old(group.fingerprint)
                if has_old and (moved := await _renew(store, group, rules, by, batch)):
                    return moved
            after = group_cursor(groups[-1])
    return await _adopt(store, rules, by, batch)


async def regroup_all(store: LetterStore, by: By = CHORE, *, batch: int = BATCH) -> int:
    """Move every letter to its group; return the number moved."""
    total = 0
    while moved := await regroup_some(store, by, batch=batch):
        total += moved
    return total


async def letters_of(
    store: LetterStore, name: str, limit: int, query: Node | None = None
) -> list[LetterHead]:
    """Return some letters of a group that match a search, newest first."""
    group = Term("group", Op.IS, (literal(name),))
    node: Node = group if query is None else All((group, query))
    heads: list[LetterHead] = []
    after: str | None = None
    while len(heads) < limit:
        page = await store.find(node, limit=limit - len(heads), after=after)
        heads += page.heads
        after = page.after
        if after is None:
            break
    return heads


async def obey_rules(store: LetterStore, name: str, rules: Rules, by: By, batch: int) -> int:
    """Move a batch of letters out of a group that was merged into another."""
    heads = await letters_of(store, name, batch)
    return await store.regroup(await _moves(store, name, {name: heads}, rules), by)


async def _renew(store: LetterStore, group: Group, rules: Rules, by: By, batch: int) -> int:
    to: defaultdict[str, list[LetterHead]] = defaultdict(list)
    for head in await letters_of(store, group.fingerprint, batch):
        # The frame is part of an old fingerprint: all its letters have the same.
        to[of_head(head, group.frame)].append(head)
    moves = await _moves(store, group.fingerprint, to, rules)
    return await store.regroup(moves, by)


async def _adopt(store: LetterStore, rules: Rules, by: By, batch: int) -> int:
    """
    Move letters whose frame has no line to the group of their cause that has one.

    Groups named after a frame of this package get the name without it.

    Letters of older versions have a frame without a line. The first new death of their cause
    has it, and inherits their standing.
    """
    latest = await store.groups(only_open=False, limit=_LATEST)
    for group in latest:
        by_version = group.fingerprint.startswith(f"{VERSION}-")
        if group.counts and by_version and is_own_frame(group.frame):
            if of_head(_as_head(group), group.frame) == group.fingerprint:
                continue  # its first letter is old, its name is not
            if moved := await _renew(store, group, rules, by, batch):
                return moved
    without = {
        group.fingerprint
        for group in latest
        if group.counts and group.frame and "#" not in group.frame
    }
    for group in reversed(latest if without else ()):
        frame, line, _ = group.frame.partition("#")
        if not line or is_overflow(group.fingerprint):  # of many causes, not of one
            continue
        old = of_head(_as_head(group), frame)
        if old in without and old != group.fingerprint:
            heads = await letters_of(store, old, batch)
            ids = tuple(head.id for head in heads)
            move = Regrouping(old=old, new=group.fingerprint, ids=ids)
            if moved := await store.regroup([move], by):
                return moved
    return 0


async def _moves(
    store: LetterStore, old: str, to: Mapping[str, Sequence[LetterHead]], rules: Rules
) -> list[Regrouping]:
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for name, heads in to.items():
        if name not in rules:
            ids[name] += [head.id for head in heads]
            continue
        for letter in await store.get([head.id for head in heads]):
            ids[target_of(letter, rules, name)].append(letter.id)
    return [
        Regrouping(old=old, new=new, ids=tuple(some)) for new, some in ids.items() if new != old
    ]


def _as_head(group: Group) -> LetterHead:
    return LetterHead(
        id="",
        message_id="",
        source=group.source,
        error_type=group.error_type,
        error_text=group.text,
        trouble=group.trouble,
        code=group.code,
        first_failed_at=group.first_seen,
        dead_at=group.last_seen,
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
