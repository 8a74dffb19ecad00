"""The idempotency ledger: who may claim a key, over few operations of a store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from itertools import count
from secrets import randbits
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from deadletter.ports.engine import (
    DIGEST,
    REMEMBERED,
    LedgerClaim,
    LedgerKey,
    LedgerState,
    refused_claim,
    standing,
)

T = TypeVar("T")

Name: TypeAlias = tuple[str, str]
"""A mailbox and a key in it."""

_AGAIN: Final = frozenset({LedgerState.FAILED, LedgerState.DEAD_LETTERED})
_MOST: Final = (1 << 63) - 1  # what all databases hold


class Entry(Struct, frozen=True):
    """The state of one key."""

    generation: int
    state: LedgerState
    holder: str
    token: int
    digests: bytes | None  # of bodies, one per generation; the last is this one's
    is_lapsed: bool = False  # a claim: its lease has run out

    def is_open_to(self, key: LedgerKey) -> bool:
        """
        Return whether a key can be claimed.

        It can for a new generation, after a failure, and when an earlier claim has run
        out. So can the message that holds it: delivered again, its earlier worker is fenced.
        """
        generation = min(key.generation, _MOST)
        if generation != self.generation:
            return generation > self.generation
        if self.state in _AGAIN:
            return True
        is_same = key.holder != "" and key.holder == self.holder and self._is_body(key)
        return self.state is LedgerState.PROCESSING and (self.is_lapsed or is_same)

    def _is_body(self, key: LedgerKey) -> bool:
        if self.digests is None or key.digest is None:
            return True
        return self.digests.endswith(key.digest)

    def digests_with(self, key: LedgerKey) -> bytes | None:
        """Return the digests of a claim in place of this entry; None is unknown."""
        if key.generation <= self.generation:
            if self.digests is None or key.digest is None:
                return key.digest
            return self.digests[:-DIGEST] + key.digest
        if self.digests is None or key.digest is None:
            return None
        return (self.digests + key.digest)[-DIGEST * REMEMBERED :]


Ended: TypeAlias = tuple[Name, int, LedgerState]
"""The key of a claim, its token and its outcome."""


class LedgerOperations(Protocol):
    """Reads and writes of one store."""

    async def claim_new(self, claims: Mapping[Name, Entry], lease: float) -> dict[Name, Entry]:
        """
        Return the entries of keys.

        A store may write claims of keys without an entry, and return these claims.
        """

    async def write(
        self, claims: Mapping[Name, Entry], found: Mapping[Name, Entry], lease: float
    ) -> Collection[Name]:
        """
        Write claims in place of entries as they were found; return the keys written.

        Claims of keys that somebody has changed since are left out.
        """

    async def finish(self, ended: Sequence[Ended], ttl: float) -> Collection[Ended]:
        """Write outcomes of claims that still have their token; return those that had."""


async def claim(
    store: LedgerOperations, keys: Sequence[LedgerKey], tokens: Sequence[int], lease: float
) -> list[LedgerClaim]:
    """Claim keys, each with a token of its own; a key asked for twice belongs to one of them."""
    asked = [((key.mailbox, key.key), key, token) for key, token in zip(keys, tokens, strict=True)]
    entries: dict[Name, Entry] = {}
    waiting = asked
    while waiting:
        new: dict[Name, Entry] = {}
        for name, key, token in waiting:
            if name not in new:
                new[name] = _claimed(key, token, key.digest)
        found = await store.claim_new(new, lease)
        current = new | found
        changes = {name: new[name] for name in new if name not in found} if found else new.copy()
        if found or len(new) < len(waiting):
            for name, key, token in waiting:
                entry = current[name]
                if entry.token != token and entry.is_open_to(key):
                    current[name] = changes[name] = _claimed(key, token, entry.digests_with(key))
        written = await store.write(changes, found, lease) if changes else ()
        lost = changes.keys() - written if len(written) < len(changes) else ()
        entries |= current
        waiting = [one for one in waiting if one[0] in lost] if lost else []
    return [
        LedgerClaim(key, True, entry.state, token)
        if (entry := entries[name]).token == token
        else refused_claim(key, entry.state, entry.digests)
        for name, key, token in asked
    ]


def _claimed(key: LedgerKey, token: int, digests: bytes | None) -> Entry:
    generation = min(_MOST, key.generation)
    return Entry(generation, LedgerState.PROCESSING, key.holder, token, digests)


class StoredLedger(ABC):
    """The part of a ledger that is the same in all stores."""

    def __init__(self, tokens: Iterator[int] | None = None) -> None:
        # Each process counts up from a place of its own. It is not drawn from the dice
        # handed in: seeded ones would repeat themselves.
        self._tokens = tokens or count(randbits(40) << 22)

    @abstractmethod
    async def transact(self, work: Callable[[LedgerOperations], Coroutine[Any, Any, T]]) -> T:
        """Run operations, as one transaction if that is what keeps others out."""

    @abstractmethod
    async def find(self, names: Collection[Name]) -> dict[Name, Entry]:
        """Return the entries of keys."""

    @abstractmethod
    async def delete_expired(self, limit: int) -> int:
        """Delete finished keys whose time to live is over; return their number."""

    @abstractmethod
    async def delete_abandoned(self, age: float, limit: int) -> int:
        """Delete claims whose lease ran out `age` seconds ago; return their number."""

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """Claim keys for processing."""
        if not keys:
            return []
        tokens = [next(self._tokens) for _ in keys]
        return await self.transact(lambda store: claim(store, keys, tokens, lease))

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still valid."""
        if not outcomes:
            return []
        ended = [((one.key.mailbox, one.key.key), one.token, state) for one, state in outcomes]
        ours = await self.transact(lambda store: store.finish(ended, ttl))
        return [True] * len(ended) if ours is ended else [one in ours for one in ended]

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys without claiming them."""
        if not keys:
            return []
        names = [(key.mailbox, key.key) for key in keys]
        found = await self.find(names)
        entries = [found.get(name) for name in names]
        return [
            standing(key, entry.generation, entry.state, entry.digests) if entry else None
            for key, entry in zip(keys, entries, strict=True)
        ]

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """Delete expired keys and abandoned claims; return how many."""
        gone = await self.delete_expired(limit)
        if abandoned is None or gone >= limit:
            return gone
        return gone + await self.delete_abandoned(abandoned, limit - gone)
