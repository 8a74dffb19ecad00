"""Mailboxes: sources of deliveries, sinks of messages, and the drains of foreign servers."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.core.origin import Found
from deadletter.core.replay_rules import Arrival, CopyState
from deadletter.core.seals import NO_KEY, Sealing

from .features import Features
from .letters import Kept


class Fate(StrEnum):
    """The reasons for which a message leaves its mailbox."""

    HANDLED = "handled"
    IGNORED = "ignored"
    CONTINUED = "continued"
    DUPLICATE = "duplicate"  # the ledger says it was handled before
    BURIED = "buried"
    FAILED = "failed"
    PURGED = "purged"


class Acked(Struct, frozen=True):
    """
    Delete this delivery permanently.

    Engines that show how a message ended (`Features.keeps_results`) get the handler's result,
    as JSON, and the history of a message that is given up.
    """

    delivery: Delivery
    fate: Fate = Fate.HANDLED
    result: bytes | None = None
    history: str | None = None


class Released(Struct, frozen=True):
    """
    Release this delivery, to be received again after `delay` seconds.

    `history`, if given, replaces the history stored with the message. An uncharged release does
    not count as an attempt.
    """

    delivery: Delivery
    delay: float = 0.0
    history: str | None = None
    charged: bool = True


Settlement: TypeAlias = Acked | Released


class Source(Protocol):
    """The receiving side of one mailbox."""

    mailbox: str
    features: Features

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """
        Claim up to `limit` deliveries, waiting up to `wait` seconds for the first.

        The lease lasts `lease` seconds, and the attempt is counted before this returns.
        Suspects are returned only with `alone`, one at a time. If cancelled, it releases what
        it may have claimed.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """
        Delete or release deliveries in one round trip; return for each whether it was still
        ours.

        A delivery that was no longer ours is unchanged.
        """

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases to `lease` seconds from now; return for each whether it is still ours."""


class Sink(Protocol):
    """The sending side of one mailbox."""

    mailbox: str

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send all messages or none; return once the broker has stored them durably.

        A sink that may have sent only some raises `PartlySent`, with the result of each. Any
        other `Refused`, `NotFound` or `ConfigError` means that none was sent.
        """


class QueueOptions(Struct, frozen=True, kw_only=True):
    """The options of a mailbox, for all its workers."""

    name: str
    dead_queue: str | None = None  # its dead-letter mailbox
    max_attempts: int = 0  # for the sweep; 0 leaves it to the worker's policy
    expire_after: float | None = None  # seconds after sending, unless the message sets it
    reference: str = ""  # a note for people


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A mailbox and the numbers of its messages."""

    options: QueueOptions
    ready: int
    delayed: int
    claimed: int
    suspects: int
    oldest_at: datetime | None = None
    tally: dict[str, int] = {}


class Reconciled(Struct, frozen=True, gc=False):
    """The result of reconciling a mailbox: messages present against messages that came and left."""

    mailbox: str
    same: bool
    unmarked: int = 0  # messages that were sent before marks were kept
    key_id: bytes = NO_KEY  # of the key its sums are made with
    is_known: bool = True  # we have that key; else nothing was compared
    lacks_key: bool = False  # a key is set, but these sums are made without any


def reconciled(
    mailbox: str, sealing: Sealing, key_id: bytes, sent: int, *, same: bool, unmarked: int = 0
) -> Reconciled:
    """Return the result for a mailbox that `sent` messages ever came to."""
    is_known = sealing.has(key_id)
    return Reconciled(
        mailbox,
        same or not is_known,
        unmarked,
        key_id,
        is_known,
        lacks_key=sealing.is_keyed and key_id == NO_KEY and sent > 0,
    )


class Swept(Struct, frozen=True):
    """The result of one sweep."""

    lost: int = 0  # claims whose lease had run out: suspects now
    suspects: frozenset[str] = frozenset()  # mailboxes with suspects waiting
    doomed: tuple[Delivery, ...] = ()  # expired or exhausted; claimed, to be buried
    misdated: int = 0  # waits and leases that were shortened
    ahead: float = 0.0  # seconds by which the clock had been ahead
    at: datetime | None = None  # the store's own time, where it has a clock of its own


class Broker(Protocol):
    """The mailboxes of an engine."""

    features: Features

    def source(self, mailbox: str) -> Source:
        """Return the source of a mailbox, which is created if it does not exist."""

    def sink(self, mailbox: str) -> Sink:
        """Return the sink of a mailbox, which is created if it does not exist."""

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox. Raises Conflict if it exists with other options."""

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox; return the number of messages deleted with it."""

    async def queues(self) -> Sequence[QueueInfo]:
        """Return all mailboxes, by name."""

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Return why the mailbox's own limits prevent this number of attempts; None if they do
        not.

        0 attempts means unlimited. The sentence says what to change.
        """

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Release what lost workers held, and claim what is expired or exhausted.

        A wait or lease longer than requested was written by a clock that has been set back
        since: it is shortened to the requested length.
        """


@runtime_checkable
class Reconciles(Protocol):
    """A broker that knows its messages by identity, not only by number."""

    async def reconcile(self) -> Sequence[Reconciled]:
        """Compare the messages present with those that came and left."""

    @property
    def sealing(self) -> Sealing:
        """Return the sealing that the sums of mailboxes are made with."""

    async def rekey(self) -> int:
        """
        Make correct sums anew with the first key; return the number of mailboxes.

        The current content is taken as correct. Senders and settlements wait meanwhile.
        """


@runtime_checkable
class Counting(Protocol):
    """A broker that can count, cheaply and exactly, the messages ready in a mailbox."""

    async def ready(self, mailbox: str) -> int:
        """
        Return how many messages the next receiver would get, up to a limit.

        Messages that are delayed, suspect or paused by an operator do not count.
        """


@runtime_checkable
class Reconnecting(Protocol):
    """A broker whose connections can be replaced while in use."""

    async def reconnect(self) -> None:
        """Drop the current connections; the next calls open new ones."""


@runtime_checkable
class OperatorLimits(Protocol):
    """A broker whose operators can limit mailboxes by rules outside of our control."""

    async def overruled(self) -> Sequence[str]:
        """
        Return how such rules interfere with mailboxes, one sentence each.

        Raises ConfigError, with advice, if the rules cannot be read.
        """


class Note(Struct, frozen=True):
    """Progress that a running handler reports: a JSON document or a line of text."""

    delivery: Delivery
    progress: bytes | None = None
    line: str | None = None


@runtime_checkable
class TakesNotes(Protocol):
    """A broker that shows notes of running handlers beside their messages."""

    async def note(self, mailbox: str, notes: Sequence[Note]) -> None:
        """Write notes in order, except those of lost deliveries."""


@runtime_checkable
class Timed(Protocol):
    """A broker whose server has its own clock, which decides due times."""

    async def time(self) -> datetime:
        """Return the time on the server."""


# Burial where mailboxes and office are one engine.


class Burial(Struct, frozen=True):
    """A delivery that is given up, and its letter."""

    delivery: Delivery
    letter: DeadLetter


class AtomicBurial(Protocol):
    """
    Burial in one transaction: keeps letters only of deliveries that are still ours.

    An engine has this if it can check its claims and write its letters in one transaction.
    Elsewhere these are two steps: a worker that freezes in between may keep the letter of a
    message that another worker has handled.
    """

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """
        Keep the letters of deliveries that are still ours, in one transaction.

        Returns None for a delivery that is no longer ours; its letter is not kept. The
        deliveries themselves are settled afterwards. All belong to one mailbox.
        """


# Replay where mailboxes and office are one engine.


class Posted(Struct, frozen=True):
    """The number of copies sent in one batch, and the size of their bodies."""

    letters: int = 0
    size: int = 0
    left_out: int = 0  # letters that were not sent
    refused: int = 0  # letters that the target server rejected


class AtomicReplay(Protocol):
    """
    Replay in one transaction: takes letters of a campaign, sends their copies and records it.

    An engine has this if it can write its letters and its mailboxes in one transaction.
    Elsewhere these are three steps: letters that were taken but not recorded as sent when the
    sender died are sent again.
    """

    @property
    def at_once(self) -> int:
        """Return how many small letters to send at once, so that nobody waits long."""

    async def send_back(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Posted:
        """
        Send the next letters of a running campaign, in one transaction.

        The rules are those of `take_replay`. A copy keeps an expiry only if it is in the
        future. Returns None if nothing is left, or the campaign is not running.
        """


CopyName: TypeAlias = tuple[str, int]
"""The letter and generation of a copy."""


class Drain(Protocol):
    """
    One dead place: a queue, a topic or a registry.

    Keep first, forget second: what was taken and not forgotten stays there, or comes back by
    itself.
    """

    place: str

    async def depth(self) -> int:
        """Return the approximate number of messages there."""

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """
        Take up to `limit` messages; fewer only if there are no more.

        Waits up to `wait` seconds for the first. Messages that were taken before and neither
        forgotten nor handed back may be among them.
        """

    async def forget(self, found: Sequence[Found]) -> None:
        """Delete messages that are kept elsewhere by now."""

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Release messages that were only looked at."""

    async def close(self) -> None:
        """Take no more; messages that are held come back by themselves."""


class Outlet(Protocol):
    """The sinks that a replay sends through."""

    def sink(self, mailbox: str) -> Sink:
        """Return the sink of one mailbox."""

    async def queues(self) -> Sequence[QueueInfo] | None:
        """Return the existing mailboxes, by name; None if that is unknown."""


class Foreign(Protocol):
    """A foreign server with dead places."""

    async def places(self) -> Sequence[str]:
        """Return the names of places that are recognisable as dead places."""

    def drain(self, place: str) -> Drain:
        """Return the drain of a place. Raises ConfigError if it cannot be one."""

    def sink(self, mailbox: str) -> Sink:
        """
        Return the sink of a mailbox that letters came from, which sends each in its form.

        Only the name of the mailbox decides, nothing in a message.
        """

    async def close(self) -> None:
        """Close everything; messages that are held come back by themselves."""


class SentCopy(Struct, frozen=True, kw_only=True):
    """A copy that was sent and has no outcome yet."""

    letter_id: str
    generation: int
    mailbox: str  # the target
    message: Message  # as the sink was given it, but its lineage is not signed
    sent_at: datetime  # at the earliest: when its sending began

    @property
    def name(self) -> CopyName:
        """Return the name of the copy, which it also carries."""
        return self.letter_id, self.generation


@runtime_checkable
class OutcomeProbe(Protocol):
    """
    A foreign server that can report the outcomes of copies sent to it.

    A `Foreign` with this method is asked, also by processes that did not send the copies.
    Copies carry their letter and generation.
    """

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """
        Return one state for each copy, in order, without changing anything.

        `HANDLED` and `DEAD` must be certain; if in doubt, return `UNKNOWN`.
        """


class CopyTrace(Struct, frozen=True):
    """The arrival of a copy whose sending was interrupted, or the reason why it is unknown."""

    arrival: Arrival
    why: str = ""  # if it is unknown
    signature: str = ""  # of what arrived: others could have written it


@runtime_checkable
class CopyFinder(Protocol):
    """
    A foreign server that can report which copies of an interrupted sending arrived.

    A `Foreign` with this method is asked before such copies are sent again. A server whose
    sinks deduplicate does not need it.
    """

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """
        Return one trace for each copy, in order, without changing anything.

        No copy was sent before its `sent_at`. The work is bounded: a copy that would take too
        much reading is `LOST`.
        """


@runtime_checkable
class KeepsIds(Protocol):
    """
    A foreign server where a message keeps its id when it is sent back.

    Another message may have that id by now. Then the copy is refused, unless the server was
    asked to give a new id.
    """

    async def ids_in_use(self, messages: Sequence[tuple[str, Message]]) -> Sequence[bool]:
        """Return for each mailbox and message whether another message has its id."""

    def with_new_ids(self) -> Foreign:
        """Return this server in a mode that gives new ids if they are in use."""


class WayBack(Outlet, Protocol):
    """The way back to the mailboxes of one foreign server."""

    @property
    def finder(self) -> CopyFinder | None:
        """Return the finder of arrived copies there, if there is one."""

    @property
    def probe(self) -> OutcomeProbe | None:
        """Return the probe of outcomes there, if there is one."""


class WaysBack(Protocol):
    """The foreign servers that letters can go back to, by name."""

    def way_of(self, server: str) -> str | None:
        """
        Return the name of the server that a letter was drained from.

        Empty: the server of our own mailboxes. None: no setting names it.
        """

    def check(self, name: str, message: Message, mailbox: str) -> None:
        """Raise `Refused` for a message that cannot go back to the named server."""

    async def ids_in_use(
        self, name: str, messages: Sequence[tuple[str, Message]]
    ) -> Sequence[bool]:
        """
        Return for each mailbox and message whether another message has its id.

        Servers that always give new ids are not asked.
        """

    def open(self, name: str, *, new_ids: bool = False) -> AbstractAsyncContextManager[WayBack]:
        """
        Open the way to a server. Raises `ConfigError` if no setting names it.

        With `new_ids`, a copy whose id is in use is sent under a new one.
        """


class Hidden(Struct, frozen=True):
    """Messages that somebody has taken and not forgotten; they come back later."""

    count: int
    seconds: float  # until messages that a drain took come back


@runtime_checkable
class Hides(Protocol):
    """A dead place that hides taken messages from others."""

    async def hidden(self) -> Hidden:
        """Return how many messages somebody has taken and not forgotten."""
