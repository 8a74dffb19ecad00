"""Verification: count and compare everything that an office keeps, and renew seals."""

from collections import Counter
from typing import Final

from deadletter.core.audit import Examination, ItemSum, Sums, renewed
from deadletter.core.letter import OPEN
from deadletter.core.seals import MASK, NAMED
from deadletter.ports.letters import Resealed

from .operations import Counts, LetterOperations, LetterReads, OfficeNumbers

_PAGE: Final = 5_000  # entries of the audit


async def survey(store: LetterReads) -> Examination:
    """Examine everything at one moment, except the contents of letters."""
    office = await store.read_office()
    examination = Examination(store.sealing, office.sums)
    examination.find(*_miscounted(office, await store.read_counts()))
    examination.find(*await store.find_oddities())
    await _read_sums(store, examination)
    chain = examination.chain
    while entries := await store.read_audit(target=None, after=chain.seq, limit=_PAGE):
        chain.add(entries)
    examination.compare(office.ends, await store.read_totals())
    return examination


async def examine_letters(store: LetterReads, examination: Examination, after: str) -> str | None:
    """Examine some letters behind `after`; return where to continue, None after the last."""
    found = await store.find_sealed(after)
    for id_ in found.unreadable:
        examination.add_unreadable(id_)
    for _, letter in found.letters:
        examination.add(letter)
    return found.after


async def _read_sums(store: LetterReads, examination: Examination) -> None:
    """Count the letters of the office and of its campaigns."""
    async for id_ in store.read_ids():
        examination.count_letter(id_)
    for seq, id_, start in await store.read_campaigns():
        examination.add_campaign(seq, id_, start)
    for sum_ in await store.read_item_sums():
        examination.add_item_sum(sum_)
    async for item in store.read_items():
        examination.add_item(*item)


def _miscounted(office: OfficeNumbers, counts: Counts) -> list[str]:
    """Compare letters with the counts; return one sentence for each difference."""
    by_source: Counter[tuple[str, str]] = Counter()
    by_group: Counter[tuple[str, str]] = Counter()
    for source, fingerprint, state, n in counts.letters:
        by_source[source, state] += n
        by_group[fingerprint, state] += n
        by_group[fingerprint, "open"] += n if state in OPEN else 0
    present = by_source.total()
    purged, expired = office.ends.purged, office.ends.expired
    expected = office.kept - purged - expired
    found: list[str] = []
    if present != expected:
        found.append(
            f"{office.kept} letters were kept, {purged} purged and"
            f" {expired} expired, but {present} are there instead of {expected}"
        )
    found += _differences("source", Counter(counts.by_source), by_source)
    found += _differences("group", Counter(counts.by_group), by_group)
    return found


def _differences(
    what: str, told: Counter[tuple[str, str]], real: Counter[tuple[str, str]]
) -> list[str]:
    different = [key for key in {**told, **real} if told[key] != real[key]]
    return [
        f"{what} {name} ({state}) should have {told[name, state]} letters,"
        f" but there are {real[name, state]}"
        for name, state in sorted(different)[:NAMED]
    ]


async def reseal(store: LetterOperations, after: str) -> Resealed:
    """Seal some letters behind `after` that have no seal, or not by the first key."""
    if not after:
        await _rekey(store)
    found = await store.find_sealed(after)
    sealed = 0
    for seq, letter in found.letters:
        seals = renewed(letter, store.sealing)
        if seals is not None:
            await store.write_seals(seq, letter, seals)
            sealed += 1
    return Resealed(sealed, found.after)


async def _rekey(store: LetterOperations) -> None:
    """Make sums of letters and campaigns anew with the first key, where they fit."""
    old = (await store.read_office()).sums
    examination = Examination(store.sealing, old)
    await _read_sums(store, examination)
    totals = await store.read_totals()
    outdated, marks = examination.outdated(totals), store.sealing.marks()
    if outdated.letters:
        letters = sum([marks.text(id_) async for id_ in store.read_ids()])
        deaths = sum(totals.values()) if old.key is None else old.deaths
        await store.write_sums(Sums(deaths, marks.texts(totals), letters & MASK, marks.key_id))
    if outdated.items:
        wanted = {(one.campaign, one.outcome): 0 for one in outdated.items}
        async for campaign, letter, outcome in store.read_items():
            if (campaign, outcome) in wanted:
                wanted[campaign, outcome] += marks.item(campaign, letter, outcome)
        await store.write_item_sums(
            [ItemSum(*place, total & MASK, marks.key_id) for place, total in wanted.items()]
        )
