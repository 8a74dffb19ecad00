"""
Letters that change their group after an upgrade of fingerprints, a batch at a time.

Each batch is one transaction, and the rest is read from the office itself: a chore that
is killed continues where it stopped. It also finishes interrupted merges.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from deadletter.core.failure.fingerprint import OLD, VERSION, is_old, is_own_frame, of_head
from deadletter.core.grouping import Regrouping, Rules, is_overflow, target_of
from deadletter.core.letter import By, Group, LetterHead
from deadletter.core.query.ast import All, Node, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.search_step import group_cursor
from deadletter.ports import LetterStore

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
