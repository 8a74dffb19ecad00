"""Dead places of others: taking out what lies there, and putting it back."""

from collections.abc import Sequence
from typing import Protocol

from deadletter.core.dialects import Found

from .broker import QueueInfo, Sink


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
