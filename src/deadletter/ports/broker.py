"""Mailboxes: where deliveries come from and messages go."""

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
    Forget this delivery for good.

    Engines that show how a message ended (`Features.keeps_results`) are told what the
    handler returned, as JSON, and the story of a message that is given up.
    """

    delivery: Delivery
    fate: Fate = Fate.HANDLED
    result: bytes | None = None
    history: str | None = None


class Released(Struct, frozen=True):
    """
    Hand this delivery back, to be received again after `delay` seconds.

    `history` replaces the story kept with the message when it is given.
    An uncharged release does not count against the attempts.
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
        Take up to `limit` deliveries, waiting up to `wait` seconds for the first.

        They are ours for `lease` seconds, and their attempt is counted before
        this returns. Suspects are handed out only when asked for `alone`, one
        at a time. Cancelled, it gives back what it may have claimed.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """
        Forget or hand back, in one round trip; says for each if it was still ours.

        Where it was not, nothing changed.
        """

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""


class Sink(Protocol):
    """The sending side of one mailbox."""

    mailbox: str

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send all or none, returning once the broker has them durably.

        A sink that may have sent some of them raises `PartlySent`, which says what
        became of each. Another `Refused`, `NotFound` or `ConfigError` means that none
        was sent.
        """


class QueueOptions(Struct, frozen=True, kw_only=True):
    """The options of a mailbox, which hold for all its workers."""

    name: str
    dead_queue: str | None = None  # its dead-letter mailbox
    max_attempts: int = 0  # for the sweep; 0 leaves it to the worker's policy
    expire_after: float | None = None  # seconds from send, unless the message says
    reference: str = ""  # a note for people


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A mailbox and what is in it."""

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
    unmarked: int = 0  # messages there that were sent before marks were kept
    key_id: bytes = NO_KEY  # of the key its sums are made with
    is_known: bool = True  # that key is ours; else nothing could be compared
    lacks_key: bool = False  # a key is set, but these sums are made without any


def reconciled(
    mailbox: str, sealing: Sealing, key_id: bytes, sent: int, *, same: bool, unmarked: int = 0
) -> Reconciled:
    """Return how a mailbox was found that `sent` messages ever came to."""
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
    misdated: int = 0  # waits and leases that would have lasted too long: shortened
    ahead: float = 0.0  # seconds by which the clock was ahead when those were written
    at: datetime | None = None  # the store's own time, where it has a clock of its own


class Broker(Protocol):
    """An engine's mailboxes."""

    features: Features

    def source(self, mailbox: str) -> Source:
        """Deliveries of one mailbox, which is made if it is not there yet."""

    def sink(self, mailbox: str) -> Sink:
        """The way into one mailbox, which is made if it is not there yet."""

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Return why this mailbox's own limits get in the way of so many attempts.

        None when they do not. 0 attempts are as many as it takes. The sentence says
        what to change.
        """

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Take back what lost workers held, and claim what is past saving.

        A wait or lease that would last longer than it was asked for was written by a
        clock that has stepped back since: it is shortened to what was asked for.
        """


@runtime_checkable
class Reconciles(Protocol):
    """A broker that knows its messages by identity, not only by number."""

    async def reconcile(self) -> Sequence[Reconciled]:
        """Compare the messages that are there with those that came and went."""

    @property
    def sealing(self) -> Sealing:
        """Return what the sums of mailboxes are made with."""

    async def rekey(self) -> int:
        """
        Make sums anew with the first key, where they fit; how many mailboxes.

        What is there then is taken for what ought to be. Whoever sends or settles
        meanwhile waits.
        """


@runtime_checkable
class Counting(Protocol):
    """A broker that can say, cheaply and truly, what could be taken from a mailbox."""

    async def ready(self, mailbox: str) -> int:
        """
        Return how many messages whoever asks next would be given; many are counted as some.

        Not those that wait for their time, for somebody who is alone, or for an
        operator who has paused them.
        """


@runtime_checkable
class Reconnecting(Protocol):
    """A broker whose connections can be made anew while it is used."""

    async def reconnect(self) -> None:
        """Give up the connections there are; the next calls make others."""


@runtime_checkable
class Overruled(Protocol):
    """A broker whose operators can limit mailboxes from outside, by rules."""

    async def overruled(self) -> Sequence[str]:
        """
        Return why rules get in the way of mailboxes, whoever works them; sentences.

        Where rules cannot be seen a ConfigError says how they could be.
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
        """Write notes, in their order, but not those of lost deliveries."""


@runtime_checkable
class Timed(Protocol):
    """A broker whose server has a clock of its own, by which due times are judged."""

    async def time(self) -> datetime:
        """Return the time on the server."""


# Burying where mailboxes and office are one engine.


class Burial(Struct, frozen=True):
    """A delivery that is given up, and the letter that tells its story."""

    delivery: Delivery
    letter: DeadLetter


class Undertaker(Protocol):
    """
    Keeps letters only of what is still ours.

    An engine has one when its claims and its letters can be looked at and written
    in one transaction. Elsewhere the two are asked one after the other, and a
    worker that is frozen between them may keep the letter of a message that
    somebody else has handled by then.
    """

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """
        Keep the letters of deliveries that are still ours, in one transaction.

        None for a delivery that is somebody else's by now: nothing is kept of it.
        The deliveries themselves stay as they are, to be settled afterwards. All
        are of one mailbox.
        """


# Sending letters back where mailboxes and office are one engine.


class Posted(Struct, frozen=True):
    """The number of copies sent in one batch, and the size of their bodies."""

    letters: int = 0
    size: int = 0
    left_out: int = 0  # letters looked at that did not go
    refused: int = 0  # letters that the server they go to did not take


class Postman(Protocol):
    """
    Takes letters of a campaign, sends their copies and records that, all in one.

    An engine has one when its letters and its mailboxes can be written in one
    transaction. Elsewhere these are three steps, and what was taken but not yet
    recorded as sent when the sender died is sent again.
    """

    @property
    def at_once(self) -> int:
        """Return how many small letters to send at once, for nobody to wait long by it."""

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

        The rules are those of `take_replay`; a copy keeps an expiry only if that is
        still to come. Nothing when nothing is left, or the campaign is not running.
        """


CopyName: TypeAlias = tuple[str, int]
"""The letter that a copy was made of, and its generation."""


class Drain(Protocol):
    """
    One dead place: a queue, a topic, a registry.

    Keep first, forget second: what was taken and not forgotten is there still, or
    comes back by itself.
    """

    place: str

    async def depth(self) -> int:
        """About how many things lie there."""

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """
        Up to `limit` things, fewer only when there are no more.

        Waits up to `wait` seconds for the first. What was taken before and is
        neither forgotten nor handed back may or may not be among them.
        """

    async def forget(self, found: Sequence[Found]) -> None:
        """They are kept elsewhere by now: out with them."""

    async def hand_back(self, found: Sequence[Found]) -> None:
        """They were only looked at: leave them where they were."""

    async def close(self) -> None:
        """Take no more; what is held comes back by itself."""


class Outlet(Protocol):
    """The ways out of an office: what a replay is sent through."""

    def sink(self, mailbox: str) -> Sink:
        """The way into one mailbox."""

    async def queues(self) -> Sequence[QueueInfo] | None:
        """The mailboxes that are there, by name; None when nobody can know."""


class Foreign(Protocol):
    """A server with dead places that are not ours."""

    async def places(self) -> Sequence[str]:
        """The dead places that can be told from others, by name."""

    def drain(self, place: str) -> Drain:
        """The way into one of them; a ConfigError when it cannot be one."""

    def sink(self, mailbox: str) -> Sink:
        """
        The way back to where letters came from, each in the form it had.

        Nothing in a message says where that is: only the name of its mailbox.
        """

    async def close(self) -> None:
        """Let go of everything; what is held comes back by itself."""


class SentCopy(Struct, frozen=True, kw_only=True):
    """A message that was sent back, and that has no outcome yet."""

    letter_id: str
    generation: int
    mailbox: str  # that it was sent to
    message: Message  # as the sink was given it, but its lineage is not signed
    sent_at: datetime  # at the earliest: when its sending began

    @property
    def name(self) -> CopyName:
        """Return what tells it from all other copies, and what it carries."""
        return self.letter_id, self.generation


@runtime_checkable
class OutcomeProbe(Protocol):
    """
    A server of others that can tell what became of messages sent back to it.

    A `Foreign` that has this method is asked, also by processes that did not send the
    copies. They carry their letter and generation.
    """

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """
        Return one state for each copy, in their order; nothing changes by it.

        `HANDLED` and `DEAD` must be certain. `UNKNOWN` is a good answer.
        """


class CopyTrace(Struct, frozen=True):
    """The fate of a copy whose sending was interrupted, or the reason why it is unknown."""

    arrival: Arrival
    why: str = ""  # where nobody knows
    signature: str = ""  # of what arrived: others could have written it


@runtime_checkable
class CopyFinder(Protocol):
    """
    A server of others that can tell which copies of an interrupted sending arrived.

    A `Foreign` that has this method is asked before such copies are sent again. One
    whose sinks send no copy twice does not need it.
    """

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """
        Return one trace for each copy, in their order; nothing changes by it.

        None of them was sent before its `sent_at`. The work is bounded: what would take
        too much reading is `LOST`.
        """


@runtime_checkable
class KeepsIds(Protocol):
    """
    A server of others where a message goes back under the id that it had.

    Another one may have that id by now. Then its copy is refused, unless the server
    was asked to give a new id.
    """

    async def ids_in_use(self, messages: Sequence[tuple[str, Message]]) -> Sequence[bool]:
        """Return for each mailbox and message whether another one has its id."""

    def with_new_ids(self) -> Foreign:
        """Return the same server, which gives new ids where they are in use."""


class WayBack(Outlet, Protocol):
    """The way back to the mailboxes of one server of others."""

    @property
    def finder(self) -> CopyFinder | None:
        """Return what can tell which copies have arrived there, if anything can."""

    @property
    def probe(self) -> OutcomeProbe | None:
        """Return what can tell the outcomes of copies there, if anything can."""


class WaysBack(Protocol):
    """The servers of others that letters can go back to, by name."""

    def way_of(self, server: str) -> str | None:
        """
        Return the name of the server that a letter was drained from.

        Empty: it is the server of our own mailboxes. None: nothing names it.
        """

    def check(self, name: str, message: Message, mailbox: str) -> None:
        """Raise `Refused` for a message that cannot go back to a server of a name."""

    async def ids_in_use(
        self, name: str, messages: Sequence[tuple[str, Message]]
    ) -> Sequence[bool]:
        """
        Ask a server for each mailbox and message whether another one has its id.

        Servers that give new ids to whatever they take are not asked.
        """

    def open(self, name: str, *, new_ids: bool = False) -> AbstractAsyncContextManager[WayBack]:
        """
        Open the way to a server; `ConfigError` if nothing names it.

        With `new_ids` a copy whose id is in use is sent under a new one.
        """


class Hidden(Struct, frozen=True):
    """Messages that somebody has taken and not forgotten: they come back later."""

    count: int
    seconds: float  # after which those that a drain took are there again


@runtime_checkable
class Hides(Protocol):
    """A dead place whose messages nobody else sees while somebody has them."""

    async def hidden(self) -> Hidden:
        """Return how many messages somebody has taken and not forgotten."""
