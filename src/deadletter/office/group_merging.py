"""
Groups merged and split by people, for letters that are there and letters to come.

The rule is stored first and the letters move then, so that letters that die meanwhile
are put where they belong. Both can be taken back.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.fingerprint import of_head, split_name
from deadletter.core.group_limit import overflow_of
from deadletter.core.letter import By, DeadLetter
from deadletter.core.query.ast import Node, Term, leaves
from deadletter.core.query.parse import parse
from deadletter.core.query.show import show
from deadletter.core.regrouping import (
    GroupRule,
    Regrouping,
    Rules,
    merged_into,
    target_of,
)
from deadletter.ports import Clock, LetterStore

from .groups import get_group
from .regrouping import BATCH, letters_of, obey_rules

LASTING: Final = frozenset(
    {"error", "text", "code", "trouble", "category", "reason", "version", "consumer"}
    | {"key", "business_key", "header", "body"}
)
"""Fields that a group can be split by: what they say of a letter stays."""


class Regrouped(Struct, frozen=True, kw_only=True):
    """The group that letters went to, and how many."""

    group: str
    moved: int


class RuleLine(Struct, frozen=True, kw_only=True):
    """A merge or a split that letters to come follow; without a query, all of them."""

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
    """Make several groups one: letters of the others belong `into` the first."""
    if not others:
        raise ConfigError(
            "only one group is named: name those to merge into it as well"
        )
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
            raise Conflict(
                f"{target.fingerprint} is merged into {name}: undo that first"
            )
        detail = f"merged into {rule.target}"
        await store.set_group_rules(name, [rule, *rules.get(name, ())], by, detail)
        rules = await store.group_rules()
        while some := await obey_rules(store, name, rules, by, BATCH):
            moved += some
    return Regrouped(group=target.fingerprint, moved=moved)


async def split_group(
    store: LetterStore,
    clock: Clock,
    name: str,
    query: str,
    by: By,
    *,
    sources: Sequence[str] = (),
) -> Regrouped:
    """Make letters that a search finds a group of their own."""
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
    Take back the last merge or split of a group; its letters go back.

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


async def list_rules(
    store: LetterStore, *, sources: Sequence[str] = ()
) -> list[RuleLine]:
    """Merges and splits that letters to come follow."""
    lines = []
    for name, rules in sorted((await store.group_rules()).items()):
        for rule in rules:
            if not sources or await _is_of(store, rule.target, sources):
                at = rule.at.isoformat()
                line = RuleLine(
                    group=name,
                    target=rule.target,
                    query=rule.query,
                    actor=rule.actor,
                    at=at,
                )
                lines.append(line)
    return lines


def check_split(query: str) -> Node:
    """The search in a text, if it can tell letters to come apart."""
    node = parse(query)
    if not query.strip():
        raise ConfigError(
            "say which letters to split off, by a search such as version:2.0 or"
            " text:timeout"
        )
    for term in leaves(node):
        if isinstance(term, Term) and term.field not in LASTING:
            raise ConfigError(
                f"{term.field}: changes while a letter is here, so no group can be"
                f" split by it: use {', '.join(sorted(LASTING))}"
            )
    return node


async def _move_all(
    store: LetterStore, old: str, new: str, node: Node | None, by: By
) -> int:
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
    Move those letters back whose own fingerprint is that of the group.

    Those whose cause the application has named stay: nothing here can name it again.
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
        (group, some[0])
        for group, some in rules.items()
        if bare and group.startswith(bare)
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
