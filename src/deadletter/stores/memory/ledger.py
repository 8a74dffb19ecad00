"""The idempotency ledger in memory."""

from collections.abc import Sequence
from datetime import datetime
from itertools import count

from msgspec import Struct

from deadletter.core.text import stored
from deadletter.ports.engine import (
    DIGEST,
    REMEMBERED,
    LedgerClaim,
    LedgerKey,
    LedgerState,
    refused_claim,
    standing,
)
from deadletter.ports.features import Clock

from .queue import later

_AGAIN = frozenset({LedgerState.FAILED, LedgerState.DEAD_LETTERED})


class Entry(Struct, kw_only=True):
    """The state of one key."""

    generation: int
    state: LedgerState
    holder: str
    token: int
    due: datetime  # until when a claim is somebody's
    digests: bytes | None  # of bodies, one per generation; the last is this one's
    expires_at: datetime | None = None  # when it may be forgotten

    def open_to(self, key: LedgerKey, now: datetime) -> bool:
        """Return whether this key can be claimed."""
        if key.generation != self.generation:
            return key.generation > self.generation
        if self.state in _AGAIN:
            return True
        # The same message, delivered again: its earlier worker is fenced.
        same = key.holder != "" and key.holder == self.holder and self._is_body(key)
        return self.state is LedgerState.PROCESSING and (self.due <= now or same)

    def _is_body(self, key: LedgerKey) -> bool:
        if self.digests is None or key.digest is None:
            return True
        return self.digests.endswith(key.digest)

    def is_over(self, now: datetime, left: datetime | None) -> bool:
        """Return whether the entry can be deleted: a claim, if its lease ran out by `left`."""
        if self.state is LedgerState.PROCESSING:
            return left is not None and self.due <= left
        return self.expires_at is not None and self.expires_at <= now


class MemoryLedger:
    """Idempotency keys of one process."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._tokens = count(1)
        self._entries: dict[tuple[str, str], Entry] = {}

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """Claim keys for processing."""
        now = self._clock.now()
        tokens = [self._begin(key, now, now + later(lease)) for key in keys]
        return [self._claim(key, token) for key, token in zip(keys, tokens, strict=True)]

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still valid."""
        expires_at = self._clock.now() + later(ttl)
        return [self._finish(claim, state, expires_at) for claim, state in outcomes]

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys without claiming them."""
        entries = [self._entries.get((key.mailbox, key.key)) for key in keys]
        return [
            standing(key, entry.generation, entry.state, entry.digests) if entry else None
            for key, entry in zip(keys, entries, strict=True)
        ]

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether there is an entry of any of these mailboxes."""
        wanted = {stored(name) for name in mailboxes}
        return any(mailbox in wanted for mailbox, _ in self._entries)

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """Delete expired keys and abandoned claims; return how many."""
        now = self._clock.now()
        left = None if abandoned is None else now - later(abandoned)
        over = [key for key, entry in self._entries.items() if entry.is_over(now, left)][:limit]
        for key in over:
            del self._entries[key]
        return len(over)

    def _begin(self, key: LedgerKey, now: datetime, due: datetime) -> int:
        token = next(self._tokens)
        entry = self._entries.get((key.mailbox, key.key))
        if entry is None or entry.open_to(key, now):
            self._entries[key.mailbox, key.key] = Entry(
                generation=key.generation,
                state=LedgerState.PROCESSING,
                holder=key.holder,
                token=token,
                due=due,
                digests=_digests(entry, key),
            )
        return token

    def _claim(self, key: LedgerKey, token: int) -> LedgerClaim:
        # Judged when all are done: a key asked for twice belongs to one of them.
        entry = self._entries[key.mailbox, key.key]
        if entry.token == token:
            return LedgerClaim(key, True, entry.state, token)
        return refused_claim(key, entry.state, entry.digests)

    def _finish(self, claim: LedgerClaim, state: LedgerState, expires_at: datetime) -> bool:
        entry = self._entries.get((claim.key.mailbox, claim.key.key))
        if entry is None or entry.token != claim.token:
            return False
        if entry.state not in {LedgerState.PROCESSING, state}:
            return False
        entry.state, entry.expires_at = state, expires_at
        return True


def _digests(before: Entry | None, key: LedgerKey) -> bytes | None:
    if before is None:
        return key.digest
    if before.generation == key.generation:
        if before.digests is None or key.digest is None:
            return key.digest
        return before.digests[:-DIGEST] + key.digest
    if before.digests is None or key.digest is None:
        return None  # what is not known stays unknown
    return (before.digests + key.digest)[-DIGEST * REMEMBERED :]
