"""Dead places of others: taking out what lies there, and putting it back."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from deadletter.core.message import Message
from deadletter.core.origin import Found
from deadletter.core.replay_rules import Arrival, CopyState

from .broker import QueueInfo, Sink

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
