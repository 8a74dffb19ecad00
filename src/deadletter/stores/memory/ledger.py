"""The idempotency ledger in memory."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from deadletter.core.text import stored
from deadletter.office.transactions.ledger import Ended, Entry, LedgerOperations, Name, StoredLedger
from deadletter.ports.engine import LedgerState
from deadletter.ports.features import Clock

from .queue import later

T = TypeVar("T")


class MemoryLedger(StoredLedger):
    """Idempotency keys of one process."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(count(1))
        self._clock = clock
        self._entries: dict[Name, Entry] = {}
        self._times: dict[Name, datetime] = {}  # until when a claim is valid, an entry is kept

    async def transact(self, work: Callable[[LedgerOperations], Coroutine[Any, Any, T]]) -> T:
        """Run operations; nothing else runs meanwhile."""
        return await work(_Operations(self))

    async def find(self, names: Collection[Name]) -> dict[Name, Entry]:
        """Return the entries of keys."""
        now = self._clock.now()
        return {
            name: replace(self._entries[name], is_lapsed=self._times[name] <= now)
            for name in names
            if name in self._entries
        }

    def put(self, entries: Mapping[Name, Entry], seconds: float) -> None:
        """Write entries, with the time until they lapse or may be forgotten."""
        self._entries |= entries
        self._times |= dict.fromkeys(entries, self._clock.now() + later(seconds))

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether there is an entry of any of these mailboxes."""
        wanted = {stored(name) for name in mailboxes}
        return any(mailbox in wanted for mailbox, _ in self._entries)

    async def delete_expired(self, limit: int) -> int:
        """Delete finished keys whose time to live is over; return their number."""
        return self._delete(self._clock.now(), limit, are_claims=False)

    async def delete_abandoned(self, age: float, limit: int) -> int:
        """Delete claims whose lease ran out `age` seconds ago; return their number."""
        return self._delete(self._clock.now() - later(age), limit, are_claims=True)

    def _delete(self, before: datetime, limit: int, *, are_claims: bool) -> int:
        over = [
            name
            for name, entry in self._entries.items()
            if (entry.state is LedgerState.PROCESSING) is are_claims and self._times[name] <= before
        ][:limit]
        for name in over:
            del self._entries[name], self._times[name]
        return len(over)


class _Operations:
    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

    async def claim_new(self, claims: Mapping[Name, Entry], lease: float) -> dict[Name, Entry]:
        """Return the entries of keys."""
        return await self._ledger.find(claims)

    async def write(
        self, claims: Mapping[Name, Entry], found: Mapping[Name, Entry], lease: float
    ) -> Collection[Name]:
        """Write claims; return their keys."""
        self._ledger.put(claims, lease)
        return claims.keys()

    async def finish(self, ended: Sequence[Ended], ttl: float) -> Collection[Ended]:
        """Write outcomes of claims that still have their token; return those that had."""
        ours = []
        for name, token, state in ended:
            entry = (await self._ledger.find([name])).get(name)
            if entry and entry.token == token and entry.state in {LedgerState.PROCESSING, state}:
                self._ledger.put({name: replace(entry, state=state)}, ttl)
                ours.append((name, token, state))
        return ours
