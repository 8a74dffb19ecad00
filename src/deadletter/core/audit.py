"""
The audit's chain: every entry is sealed together with all that came before it.

An entry that is changed, taken out, put elsewhere or slipped in no longer fits
its neighbours. Whoever cuts the end off is found out by the last seal, which
stores keep apart from the entries.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from .letter import AuditEntry, By
from .seals import PLAIN, Sealing

DIED_AGAIN: Final = By("office", "it died again")
"""The actor and reason recorded when a new death reopens a letter."""


def act(action: str, target: str, by: By, *, at: datetime, detail: str = "") -> AuditEntry:
    """An act before it is numbered and sealed."""
    return AuditEntry(
        seq=0, at=at, actor=by.actor, action=action, target=target, reason=by.reason, detail=detail
    )


def seal(
    entries: Iterable[AuditEntry], *, seq: int, previous: str, sealing: Sealing = PLAIN
) -> list[AuditEntry]:
    """Entries numbered and sealed, to follow entry `seq`, sealed with `previous`."""
    sealed: list[AuditEntry] = []
    for number, entry in enumerate(entries, seq + 1):
        numbered = replace(entry, seq=number, previous=previous)
        previous = sealing.entry(previous, numbered)
        sealed.append(replace(numbered, hash=previous))
    return sealed
