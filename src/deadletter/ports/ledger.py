"""Idempotency: what has been done already, and what is being done now."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol, Self, runtime_checkable

from msgspec import Struct

from deadletter.core.text import stored

DIGEST: Final = 16  # bytes of one content digest
REMEMBERED: Final = 4  # generations whose digests an entry keeps, the latest ones


class LedgerState(StrEnum):
    """The progress of the work for one key."""

    PROCESSING = "processing"
    PROCESSED = "processed"
    FAILED = "failed"
    DEAD_LETTERED = "dead_lettered"


class LedgerKey(Struct, frozen=True):
    """
    What must be done once: a key within a mailbox, per replay generation.

    `holder` is the message that wants to do it. The same message, with the same
    body, may take over its own claim: it was delivered again, so its earlier worker
    is fenced. `digest` is that of its body; None where the body does not matter.
    """

    mailbox: str
    key: str
    generation: int = 0
    holder: str = ""
    digest: bytes | None = None

    @classmethod
    def of_message(
        cls, mailbox: str, key: str, generation: int, holder: str = "", digest: bytes | None = None
    ) -> Self:
        """Return a key made of a message's texts, which may be no text at all."""
        return cls(stored(mailbox), stored(key), generation, stored(holder), digest)


class LedgerClaim(Struct, frozen=True):
    """
    The answer to `begin`.

    With `mine` the work may start. Otherwise `state` tells why not: processed
    before, or being processed by somebody whose lease still runs. With `conflict`
    it was finished with another body, so that this one has not been worked.
    """

    key: LedgerKey
    mine: bool
    state: LedgerState
    token: int = 0
    conflict: bool = False


def refused_claim(key: LedgerKey, state: LedgerState, digests: bytes | None) -> LedgerClaim:
    """Return the answer to a rejected claim; `digests` are those of the entry."""
    return LedgerClaim(key, False, state, conflict=_is_for_another(key, state, digests))


def standing(
    key: LedgerKey, generation: int, state: LedgerState, digests: bytes | None
) -> LedgerState | None:
    """Return the state of a key for this caller, from the values of its entry."""
    if generation < key.generation or _is_for_another(key, state, digests):
        return None
    return state


def _is_for_another(key: LedgerKey, state: LedgerState, digests: bytes | None) -> bool:
    """
    Return whether a key was finished with other bodies than this one.

    Unknown bodies count as the same: keys finished before digests were kept,
    and those of handlers to whom the body does not matter.
    """
    if state is LedgerState.PROCESSING or key.digest is None or not digests:
        return False
    places = range(0, len(digests), DIGEST)
    return all(digests[place : place + DIGEST] != key.digest for place in places)


class Ledger(Protocol):
    """Idempotency: what has been done already, and what is being done now."""

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """
        Claim keys for processing. A higher generation re-opens a finished key.

        The digest of a body is kept with its claim: in place of the one before it in
        the same generation, and behind those of earlier generations.
        """

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still valid."""

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys without claiming them; None if finished for another body."""

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """
        Drop finished keys whose time to live is over.

        With `abandoned`, claims whose lease ran out that many seconds ago go as
        well: their message is gone, nobody will ever finish them. Looking for
        those may take a look at every key.
        """


@runtime_checkable
class LedgerInUse(Protocol):
    """A ledger that can tell cheaply whether mailboxes use it at all."""

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether there is an entry of any of these mailboxes."""
