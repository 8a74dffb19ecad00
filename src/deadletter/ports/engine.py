"""The engine that a URL opens, with its ledger, items and access records."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Protocol, Self, runtime_checkable

from msgspec import Struct

from deadletter.core.access import Answer, Session, Token
from deadletter.core.text import stored
from deadletter.queue_server.model import (
    Completion,
    DeadItem,
    Item,
    LeasedItems,
    LeaseQueue,
    NewItem,
    PartitionStats,
    Rejection,
    RetryBatch,
)

from .broker import AtomicBurial, AtomicReplay, Broker
from .features import Features
from .letters import LetterStore

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
    A key of work that must be done once: within a mailbox, per replay generation.

    `holder` is the message that claims it. The same message with the same body may take over
    its own claim: it was delivered again, so its earlier worker is fenced. `digest` is that of
    its body; None if the body does not matter.
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
        """Return a key made of a message's texts, with odd text escaped."""
        return cls(stored(mailbox), stored(key), generation, stored(holder), digest)


class LedgerClaim(Struct, frozen=True):
    """
    The answer to `begin`.

    With `mine`, the work may start. Otherwise `state` says why not: processed before, or in
    progress under a valid lease. With `conflict` it was finished with another body, so this one
    has not been processed.
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

    Unknown bodies count as the same: those of keys finished before digests were kept, and of
    handlers to which the body does not matter.
    """
    if state is LedgerState.PROCESSING or key.digest is None or not digests:
        return False
    places = range(0, len(digests), DIGEST)
    return all(digests[place : place + DIGEST] != key.digest for place in places)


class Ledger(Protocol):
    """Idempotency: the work that is done, and the work in progress."""

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """
        Claim keys for processing. A higher generation re-opens a finished key.

        The digest of a body is kept with its claim: it replaces the one of the same generation,
        and follows those of earlier generations.
        """

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still valid."""

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys without claiming them; None if finished for another body."""

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """
        Delete finished keys whose time to live is over.

        With `abandoned`, also delete claims whose lease ended that many seconds ago: their
        message is gone, so nobody will finish them. Finding those may read every key.
        """


@runtime_checkable
class LedgerInUse(Protocol):
    """A ledger that can tell cheaply whether mailboxes use it."""

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether any of these mailboxes has an entry."""


class SweepResult(Struct, frozen=True):
    """The changes of a sweep, and when the next one is due."""

    dead: tuple[DeadItem, ...] = ()
    ready: frozenset[str] = frozenset()  # queues with something to lease again
    next_at: datetime | None = None  # the earliest deadline or schedule ahead
    more: bool = False  # the limit was reached: sweep again


class ShortenedLeases(Struct, frozen=True):
    """Leases that were shortened because a clock had been ahead."""

    leases: int = 0
    ahead: float = 0.0  # seconds by which the clock was ahead, at most


class ItemStore(Protocol):
    """
    Items in queues, leased and returned.

    Calls are batches: the requests of several clients to one queue are one call and one
    transaction, and each request is applied as a whole or not at all. Time is the clock
    of the store. Calls for an unknown queue raise NotFound, as do calls for an unknown
    partition unless they answer with a Rejection. Invalid values raise ConfigError. An
    expired lease stays in force until the next `sweep`.
    """

    async def create_queue(self, queue: LeaseQueue) -> None:
        """Create a queue; raises Conflict if it exists."""

    async def update_queue(self, queue: LeaseQueue) -> None:
        """
        Change the options of a queue; it cannot get fewer partitions.

        Limits and dead queue apply to the items in it as well. Only a deadline that an
        item already has stays.
        """

    async def delete_queue(self, name: str, *, force: bool = False) -> int:
        """
        Delete a queue and its items; return the number of items.

        The dead queue of another one is deleted only with `force`.
        """

    async def queue(self, name: str) -> LeaseQueue:
        """Return one queue."""

    async def queues(
        self, *, pivot: str = "", limit: int, namespace: str | None = None
    ) -> Sequence[LeaseQueue]:
        """Return queues by name, from `pivot` on, itself included."""

    async def produce(self, queue: str, batches: Sequence[Sequence[NewItem]]) -> None:
        """
        Add items; each batch goes as a whole to the least loaded healthy partition.

        That is, of the partitions with the fewest failures, the one with the fewest items
        that nobody leases.
        """

    async def lease(self, queue: str, wants: Sequence[int]) -> Sequence[LeasedItems]:
        """
        Lease up to `wants` items to each client, counting the attempt.

        Each client gets items of one partition; partitions with the oldest items come
        first. If a partition has fewer items than its clients want, they share them
        evenly; clients for which nothing is left get no items.
        """

    async def complete(
        self, queue: str, requests: Sequence[Completion]
    ) -> Sequence[Rejection | None]:
        """Delete leased items for good."""

    async def retry(
        self, queue: str, requests: Sequence[RetryBatch]
    ) -> Sequence[Rejection | Sequence[DeadItem]]:
        """
        Return leased items to the tail of their partition, or move them to the dead queue.

        Items without attempts or time left are dead as well. In a dead queue nothing
        dies again: an item that is declared dead there goes to the tail.
        """

    async def sweep(self, *, limit: int = 1000) -> SweepResult:
        """
        Requeue items whose lease expired or whose schedule is due, and move dead ones.

        Nothing else does this: call it at `next_at`, and after every change that may
        have made `next_at` earlier.

        The move to a dead queue is one transaction with the removal, gives a new id, and
        happens once. An error names the dead queue. An item whose lease
        is still valid is left alone. Items of dead queues never expire and never run out
        of attempts.
        """

    async def shorten_leases(self) -> ShortenedLeases:
        """
        Shorten leases that begin in the future: a clock was ahead and has been corrected.

        Each lasts as long as its queue leases items, from now on. One call looks at a
        part of many leases; call it regularly.
        """

    async def stats(self, queue: str) -> Sequence[PartitionStats]:
        """Return the statistics of each partition."""

    async def items(
        self, queue: str, partition: int, *, pivot: str = "", limit: int, scheduled: bool = False
    ) -> Sequence[Item]:
        """Return items in order, from `pivot` on, itself included; or scheduled ones."""

    async def import_items(
        self, queue: str, partition: int, items: Sequence[Item]
    ) -> Sequence[Item]:
        """
        Add items as they are, with new ids; return those that were added.

        An item is skipped if an item in the queue has its `source_id`. Missing deadlines
        come from the queue, as does the limit of attempts.
        """

    async def delete_items(self, queue: str, partition: int, ids: Sequence[str]) -> int:
        """Delete items, leased or not; return how many there were."""

    async def clear(self, queue: str, *, waiting: bool, scheduled: bool, destructive: bool) -> int:
        """Delete waiting or scheduled items; leased ones only if `destructive`."""

    def on_ready(self, tell: Callable[[str], None]) -> None:
        """
        Call `tell` with the name of a queue that may have something to lease.

        Also if another process put it there. The callback runs on the event loop, and
        may come although there is nothing to lease.
        """


class AccessStore(Protocol):
    """
    Tokens, sessions and answers, shared by all servers of one office.

    The next request anywhere sees a change: nothing is cached for long.
    """

    async def add_token(self, token: Token) -> None:
        """Store a token; raises Conflict if its id or hash exists."""

    async def token(self, hash: str) -> Token | None:
        """Return the token with this hash, or None if it is unknown or revoked."""

    async def tokens(self) -> Sequence[Token]:
        """Return all tokens that are not revoked, by name."""

    async def used(self, id: str) -> None:
        """Record that a token was used now, to the hour."""

    async def revoke(self, id: str) -> bool:
        """Delete a token and its sessions; return whether it existed."""

    async def open_session(self, session: Session) -> None:
        """Store a session; raises NotFound if its token is gone."""

    async def session(self, hash: str) -> Session | None:
        """Return the session with this hash, or None if it is unknown or expired."""

    async def sessions(self) -> Sequence[Session]:
        """Return all sessions that have not expired, latest first."""

    async def close_session(self, hash: str) -> None:
        """Delete a session."""

    async def put_token(self, token: Token) -> None:
        """
        Store a token, or replace the one with its id.

        Sessions of the earlier one end if it was for somebody else or had other rights.
        """

    async def begin_answer(self, answer: Answer) -> Answer | None:
        """
        Claim an idempotency key; return None, or the answer that holds it.

        Expired keys can be claimed again.
        """

    async def finish_answer(self, answer: Answer) -> None:
        """Store the answer to a request."""

    async def drop_answer(self, key: str) -> None:
        """Release a key: the request failed and may be tried again."""

    async def tidy(self, *, limit: int = 1000) -> int:
        """Delete expired sessions and answers; return how many."""


class Engine(Protocol):
    """An open engine: mailboxes, and an office and a ledger if the engine has them."""

    features: Features
    broker: Broker
    letters: LetterStore | None
    ledger: Ledger | None
    atomic_burial: AtomicBurial | None  # if mailboxes and office are one
    atomic_replay: AtomicReplay | None  # as above

    async def close(self) -> None:
        """Finish work in progress and close everything."""


@runtime_checkable
class LocksFile(Protocol):
    """An engine on a file that processes share by locks."""

    lock_problem: str | None  # why other code in this process can drop its locks


@runtime_checkable
class AnyLoop(Protocol):
    """An engine that several event loops of one process can use at once."""

    any_loop: Literal[True]


@runtime_checkable
class Losable(Protocol):
    """An engine whose store can disappear while in use, such as a file."""

    def lost(self) -> str | None:
        """Return why this process can no longer use the store; None if it can."""


def loss_of(engine: Engine) -> str | None:
    """Return why this process can no longer use an engine's store; None if it can."""
    return engine.lost() if isinstance(engine, Losable) else None


@runtime_checkable
class KeepsItems(Protocol):
    """An engine that also keeps the items of the queue server."""

    items: ItemStore


@runtime_checkable
class Guards(Protocol):
    """An engine that also keeps tokens and sessions."""

    access: AccessStore
