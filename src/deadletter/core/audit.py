"""
The audit's chain: every entry is sealed together with all that came before it.

An entry that is changed, taken out, put elsewhere or slipped in no longer fits
its neighbours. Whoever cuts the end off is found out by the last seal, which
stores keep apart from the entries.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from .letter import AuditEntry, By

DIED_AGAIN: Final = By("office", "it died again")
"""Who opens again what a further death has opened again, and why."""


def act(
    action: str, target: str, by: By, *, at: datetime, detail: str = ""
) -> AuditEntry:
    """An act before it is numbered and sealed."""
    return AuditEntry(
        seq=0,
        at=at,
        actor=by.actor,
        action=action,
        target=target,
        reason=by.reason,
        detail=detail,
    )


def entry_hash(previous: str, entry: AuditEntry) -> str:
    """The seal of an entry that follows the one sealed with `previous`."""
    moment = entry.at.astimezone(UTC).isoformat(timespec="microseconds")
    digest = blake2b(digest_size=32)
    for part in (
        *(previous, str(entry.seq), moment, entry.actor, entry.action),
        *(entry.target, entry.reason, entry.detail),
    ):
        encoded = part.encode("utf-8", "surrogatepass")
        # Lengths go in as well, so that moving a letter from the end of one
        # text to the beginning of the next does not go unnoticed.
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()


def seal(entries: Iterable[AuditEntry], *, seq: int, previous: str) -> list[AuditEntry]:
    """Entries numbered and sealed, to follow entry `seq`, sealed with `previous`."""
    sealed: list[AuditEntry] = []
    for number, entry in enumerate(entries, seq + 1):
        numbered = replace(entry, seq=number, previous=previous)
        previous = entry_hash(previous, numbered)
        sealed.append(replace(numbered, hash=previous))
    return sealed


def check_chain(
    entries: Iterable[AuditEntry], *, seq: int = 0, previous: str = ""
) -> Iterator[str]:
    """
    What is wrong with a stretch of the audit, one sentence each.

    The stretch follows entry `seq`, sealed with `previous`: it is taken for the
    very beginning unless told otherwise.
    """
    for entry in entries:
        if entry.seq != seq + 1:
            yield f"audit entry {seq + 1} is missing: the next one is {entry.seq}"
        elif entry.previous != previous:
            yield f"audit entry {entry.seq} does not follow the one before it"
        if entry.hash != entry_hash(entry.previous, entry):
            yield f"audit entry {entry.seq} is not as it was written"
        seq, previous = entry.seq, entry.hash
