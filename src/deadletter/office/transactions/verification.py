"""Verification: compare counts with letters, and renew seals."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from deadletter.core.audit import renewed
from deadletter.core.letter import OPEN
from deadletter.core.seals import NAMED
from deadletter.ports.letters import Resealed

from .operations import LetterOperations


class Counts(Struct, frozen=True):
    """The numbers of letters that a store has written down."""

    kept: int
    purged: int
    expired: int
    by_source: Mapping[tuple[str, str], int]  # source and state
    by_group: Mapping[tuple[str, str], int]  # fingerprint and state, or "open"


def miscounted(letters: Iterable[tuple[str, str, str, int]], counts: Counts) -> list[str]:
    """
    Compare letters with the counts; return one sentence for each difference.

    Letters are given as source, fingerprint, state and number.
    """
    by_source: Counter[tuple[str, str]] = Counter()
    by_group: Counter[tuple[str, str]] = Counter()
    for source, fingerprint, state, n in letters:
        by_source[source, state] += n
        by_group[fingerprint, state] += n
        by_group[fingerprint, "open"] += n if state in OPEN else 0
    present = by_source.total()
    expected = counts.kept - counts.purged - counts.expired
    found: list[str] = []
    if present != expected:
        found.append(
            f"{counts.kept} letters were kept, {counts.purged} purged and"
            f" {counts.expired} expired, but {present} are there instead of {expected}"
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
        await store.rekey_sums()
    letters, last = await store.find_sealed(after)
    sealed = 0
    for seq, letter in letters:
        seals = renewed(letter, store.sealing)
        if seals is not None:
            await store.write_seals(seq, letter, seals)
            sealed += 1
    return Resealed(sealed, last)
