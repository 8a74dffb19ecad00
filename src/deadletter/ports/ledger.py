"""Idempotency: what has been done already, and what is being done now."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, Self

from msgspec import Struct

from deadletter.core.escaping import stored


class LedgerState(StrEnum):
    """How far the work for one key has come."""

    PROCESSING = "processing"
    PROCESSED = "processed"
    FAILED = "failed"
    DEAD_LETTERED = "dead_lettered"


class LedgerKey(Struct, frozen=True):
    """
    What must be done once: a key within a mailbox, per replay generation.

    `holder` is the message that wants to do it. The same message may take over
    its own claim: it was delivered again, so its earlier worker is fenced.
    """

    mailbox: str
    key: str
    generation: int = 0
    holder: str = ""

    @classmethod
    def of_message(
        cls, mailbox: str, key: str, generation: int, holder: str = ""
    ) -> Self:
        """Return a key made of a message's texts, which may be no text at all."""
        return cls(stored(mailbox), stored(key), generation, stored(holder))


class LedgerClaim(Struct, frozen=True):
    """
    The answer to `begin`.

    With `mine` the work may start. Otherwise `state` tells why not: processed
    before, or being processed by somebody whose lease still runs.
    """

    key: LedgerKey
    mine: bool
    state: LedgerState
    token: int = 0


class Ledger(Protocol):
    """Idempotency: what has been done already, and what is being done now."""

    async def begin(
        self, keys: Sequence[LedgerKey], *, lease: float
    ) -> Sequence[LedgerClaim]:
        """Claim keys for processing. A higher generation re-opens a finished key."""

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record how it ended; says for each if the claim was still ours."""

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """How keys stand, without claiming them."""

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """
        Drop finished keys whose time to live is over.

        With `abandoned`, claims whose lease ran out that many seconds ago go as
        well: their message is gone, nobody will ever finish them. Looking for
        those may take a look at every key.
        """
