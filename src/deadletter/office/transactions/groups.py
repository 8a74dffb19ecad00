"""Transactions on groups: how they stand, which letters belong to them."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from deadletter.core.audit import act
from deadletter.core.errors import NotFound
from deadletter.core.grouping import GroupRule, Regrouping, deaths_moved, joined, said, told
from deadletter.core.letter import By, Standing

from .operations import LetterOperations, Shifts


async def set_group(
    store: LetterOperations, fingerprint: str, standing: Standing, by: By, now: datetime
) -> None:
    """Write another standing of a group. Raises NotFound if there is no such group."""
    old = (await store.find_standings([fingerprint])).get(fingerprint)
    if old is None:
        raise NotFound(f"there is no group {fingerprint}")
    await store.set_standing(fingerprint, standing)
    entry = act("group", fingerprint, by, at=now, detail=said(old, standing))
    await store.append_audit([entry])


async def regroup(
    store: LetterOperations, moves: Sequence[Regrouping], by: By, now: datetime
) -> int:
    """Move letters to other groups, with what was said of theirs; return how many moved."""
    renamed: dict[str, str] = {}
    moved = sum([await _regroup(store, move, by, now, renamed) for move in moves])
    if renamed:
        await store.rename_deaths(renamed)
    return moved


async def _regroup(
    store: LetterOperations, move: Regrouping, by: By, now: datetime, renamed: dict[str, str]
) -> int:
    """Make one move; add a group that is gone to `renamed`."""
    members = await store.find_members(move.ids, move.old)
    if not members or move.old == move.new:
        return 0
    heads = [head for _, head in members]
    found = await store.find_groups([move.old, move.new], now)
    old, new = found[move.old], found.get(move.new)
    is_last = sum(old.counts.values()) <= len(heads)
    after = joined(old, new, heads, is_last=is_last)
    await store.put_group(move.new, after)
    shifts: Shifts = Counter()
    for head in heads:
        shifts[head.source, head.fingerprint, head.state] -= 1
        shifts[head.source, move.new, head.state] += 1
    await store.move_members(members, move.new)
    await store.count_deaths(deaths_moved(move, new, after))
    await store.shift_counts(shifts)
    if is_last:
        await store.delete_group(move.old)
        for name, target in renamed.items():
            renamed[name] = move.new if target == move.old else target
        renamed[move.old] = move.new
    else:
        await store.shrink_group(move.old, len(heads))
    detail = told(len(heads), move)
    await store.append_audit([act("regroup", move.old, by, at=now, detail=detail)])
    return len(heads)


async def set_group_rules(  # noqa: PLR0917 -- as the port has it
    store: LetterOperations,
    fingerprint: str,
    rules: Sequence[GroupRule],
    by: By,
    detail: str,
    now: datetime,
) -> None:
    """Write the merges and splits that apply to letters of a group from now on."""
    await store.set_rules(fingerprint, rules)
    await store.append_audit([act("regroup-rule", fingerprint, by, at=now, detail=detail)])
