"""Filing: letters that died are kept, grouped and counted; those that are there die again."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

from deadletter.core.audit import DIED_AGAIN, act
from deadletter.core.campaign import Outcome
from deadletter.core.grouping import (
    GroupLimit,
    day_of,
    followed,
    groups_of,
    placed,
    regressed,
    regresses,
    said,
    versions_to_compare,
)
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.letter_filing import Filed, Filing, failed_copies, reopened
from deadletter.core.query.versions import first_seen
from deadletter.ports.letters import Kept, ReplaySettled

from .operations import FiledCounts, LetterOperations, Shifts
from .outcomes import settle


async def file_letters(
    store: LetterOperations, letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit
) -> list[Kept]:
    """Keep letters; campaigns learn of the copies that failed."""
    filing = Filing(await _grouped(store, letters, now, limit))
    known = await store.find_known(filing.ids)
    if rivals := filing.rivals(known):
        known |= await store.find_known(rivals)
    filed = filing.decide(known)
    after = {one.id: one.after for one in filed if one.after is not None}
    if after:
        new = {one.id: one.letter for one in filed if one.before is None}
        await store.insert_letters([(after[id_], letter) for id_, letter in new.items()])
        if len(new) < len(after):
            await store.rewrite_letters([after[id_] for id_ in after if id_ not in new])
        await _count(store, filed, list(new), now, limit)
        if entries := reopened(filed, now):
            await store.append_audit(entries)
    if copies := failed_copies(filed):
        failed = [ReplaySettled(one.letter_id, one.generation, Outcome.FAILED) for one in copies]
        await settle(store, failed, now)
    return [Kept(one.id, is_new=one.before is None, conflict=one.conflict) for one in filed]


async def _grouped(
    store: LetterOperations, letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit
) -> Sequence[DeadLetter]:
    """Return the letters in the groups they are to be kept in; new groups are counted."""
    rules = await store.find_rules()
    letters, named = placed(letters, rules)
    new = limit.candidates(letters, named)
    if not new:
        return letters
    day = day_of(now)
    there, made = await store.find_new_groups(new, day)
    limit.remember(there)
    for name in there:
        new.pop(name, None)
    if not new:
        return letters
    kept, more = limit.divert(letters, new, made)
    if more:
        await store.add_new_groups(more, day)
    return followed(kept, rules)


async def _count(
    store: LetterOperations,
    filed: Sequence[Filed],
    new: list[str],
    now: datetime,
    limit: GroupLimit,
) -> None:
    died = [one.letter for one in filed if one.died]
    heads = [letter.head for letter in died]
    counts = FiledCounts(
        new, _shifts(filed), groups_of(died), first_seen(heads), limit.deaths.counted(heads, now)
    )
    resolved = await store.count_filed(counts)
    if resolved:
        await _regress(store, resolved, heads, now)


def _shifts(filed: Sequence[Filed]) -> Shifts:
    heads = [one.after.head for one in filed if one.after is not None]
    shifts = Counter([(head.source, head.fingerprint, head.state) for head in heads])
    for one in filed:
        if one.before is not None and one.after is not None:
            head = one.before.head
            shifts[head.source, head.fingerprint, head.state] -= 1
    return shifts


async def _regress(
    store: LetterOperations, names: Sequence[str], deaths: Sequence[LetterHead], now: datetime
) -> None:
    """Mark resolved groups as regressed where these deaths show that they are not."""
    standings = await store.find_standings(names)
    heads: defaultdict[str, list[LetterHead]] = defaultdict(list)
    for head in deaths:
        heads[head.fingerprint].append(head)
    wanted = versions_to_compare(standings, deaths)
    seen = await store.find_versions(wanted) if wanted else {}
    for name, standing in standings.items():
        if regresses(standing, heads[name], seen):
            after = regressed(standing, now)
            await store.set_standing(name, after)
            entry = act("regress", name, DIED_AGAIN, at=now, detail=said(standing, after))
            await store.append_audit([entry])
