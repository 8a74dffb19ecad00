"""Checking the audit: its chain, and what it says against what is there."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from .letter import AuditEntry
from .seals import PLAIN, Sealing, Verdict, is_keyed

NAMED: Final = 10  # problems of one kind; more of them would say nothing new
ACCEPTED: Final = "seal"
"""The act of somebody with the key who accepts the entries before it."""

_REMOVALS: Final = ("purge", "expire")


class Ends(Struct, frozen=True):
    """What an office says of its audit and its letters, apart from them."""

    seq: int  # of the last audit entry
    hash: str
    purged: int
    expired: int


class Chain:
    """The audit from its first entry on, checked page by page."""

    def __init__(
        self, sealing: Sealing = PLAIN, *, seq: int = 0, previous: str = ""
    ) -> None:
        self.seq = seq
        self.hash = previous
        self.unkeyed = 0  # entries sealed without a key
        self.unknown = 0  # entries sealed with a key that we do not have
        self.plans: Counter[str] = Counter()  # letters, by campaign
        self._removed: Counter[str] = Counter()
        self._sealing = sealing
        self._doubtful = 0  # entries without a key that nobody with it has accepted
        self._last_doubtful = 0
        self.broken: list[str] = []  # what is wrong so far, one sentence each

    def add(self, entries: Iterable[AuditEntry]) -> None:
        """Check the entries that follow, oldest first."""
        for entry in entries:
            self._check_place(entry)
            self._check_seal(entry)
            self.seq, self.hash = entry.seq, entry.hash
            if entry.action in _REMOVALS:
                self._removed[entry.action] += 1
            elif entry.action == "replay":
                self.plans[entry.target] += _planned(entry.detail)

    def findings(self, ends: Ends) -> list[str]:
        """What is wrong, one sentence each, once all entries were added."""
        found = self.broken[:NAMED]
        if (self.seq, self.hash) != (ends.seq, ends.hash):
            found.append(
                f"the audit ends with entry {self.seq}, but {ends.seq} were written"
            )
        if self._sealing.is_keyed and self._doubtful:
            found.append(
                without_key(
                    f"{self._doubtful} audit entries up to {self._last_doubtful} are"
                    " sealed"
                )
            )
        for action, told in zip(_REMOVALS, (ends.purged, ends.expired), strict=True):
            real = self._removed[action]
            if told != real:
                found.append(
                    f"{told} letters are counted as {action}d, but the audit tells"
                    f" of {real}"
                )
        return found

    def missing_plans(self, campaigns: Mapping[str, int]) -> list[str]:
        """Campaigns that are not as the audit says; their letters are given by id."""
        found = []
        for id_ in self.plans.keys() | campaigns.keys():
            told, real = self.plans[id_], campaigns.get(id_)
            if real is None:
                found.append(f"campaign {id_} is missing: the audit tells of its start")
            elif id_ not in self.plans:
                found.append(f"campaign {id_} was never started by anybody")
            elif told != real:
                found.append(
                    f"campaign {id_} has {real} letters, but the audit says {told}"
                )
        return sorted(found)[:NAMED]

    def _check_place(self, entry: AuditEntry) -> None:
        if entry.seq != self.seq + 1:
            self.broken.append(
                f"audit entry {self.seq + 1} is missing: the next one is {entry.seq}"
            )
        elif entry.previous != self.hash:
            self.broken.append(
                f"audit entry {entry.seq} does not follow the one before it"
            )

    def _check_seal(self, entry: AuditEntry) -> None:
        verdict = self._sealing.check_entry(entry)
        if verdict is Verdict.BAD:
            self.broken.append(f"audit entry {entry.seq} is not as it was written")
        elif verdict is Verdict.UNKNOWN:
            self.unknown += 1
        elif not is_keyed(entry.hash):
            self.unkeyed += 1
            self._doubtful += 1
            self._last_doubtful = entry.seq
        elif entry.action == ACCEPTED:
            self._doubtful = 0


def without_key(what: str) -> str:
    """Return the finding that something was made without the key that is set."""
    return (
        f"{what} without the key: from before it was set, by a process that does not"
        " have it, or by somebody who wrote it anew; read `dlq audit`, then accept it"
        " as it is now with `dlq audit seal`"
    )


def check_chain(
    entries: Iterable[AuditEntry], *, seq: int = 0, previous: str = ""
) -> list[str]:
    """
    What is wrong with a stretch of the audit, one sentence each.

    The stretch follows entry `seq`, sealed with `previous`: it is taken for the
    very beginning unless told otherwise.
    """
    chain = Chain(seq=seq, previous=previous)
    chain.add(entries)
    return chain.broken


def _planned(detail: str) -> int:
    number = detail.partition(" ")[0]
    return int(number) if number.isascii() and number.isdigit() else 0
