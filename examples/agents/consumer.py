"""The consumer of a dead-letter mailbox."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from deadletter.core.letter import DeadLetter as Kept
from deadletter.runtime.dlq_consumer import DLQConsumer as Consumer
from deadletter.runtime.loop_group import Loop as Member
from deadletter.runtime.registration import LetterHandler

from .letters import DeadLetter, dead_letter
from .mailbox import PostMailbox
from .message import Mailbox
from .running import WAIT, Runnable, assembled

T = TypeVar("T")


class DLQConsumer(Runnable, Generic[T]):
    """
    Hands the letters of one dead-letter mailbox to a handler, one at a time.

    What the handler returns says what it did: "replayed", "discarded" or "alerted",
    anything else is "processed". A letter it fails on comes again in an hour; it is
    never dead-lettered again. Letters past the mailbox's `default_ttl` are discarded;
    what the office keeps of them stays there.
    """

    def __init__(
        self,
        *,
        mailbox: Mailbox[DeadLetter[T], None],
        handler: Callable[[DeadLetter[T]], object],
        visibility_timeout: float = 300,
    ) -> None:
        self._mailbox = cast("PostMailbox[DeadLetter[T], None]", mailbox)
        super().__init__(self._mailbox.post)
        self._handler = handler
        self._visibility_timeout = visibility_timeout
        self._consumer: Consumer | None = None

    @property
    def member(self) -> str:
        return f"dlq consumer {self._mailbox.name}"

    def dead_mailboxes(self) -> list[PostMailbox[Any, Any]]:
        return [self._mailbox]

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float | None = None,
        wait_time_seconds: float = WAIT,
    ) -> None:
        """Poll so many times, or until it is shut down, which is for good."""
        self.post.call(self._run(max_iterations, visibility_timeout, wait_time_seconds))

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop after the letter in hand; says whether that was in time."""
        if self._group is not None or self._consumer is None:
            return super().shutdown(timeout=timeout)
        self._is_shut = True
        return self.post.call(self._consumer.shutdown(timeout))

    def registration(
        self, *, visibility_timeout: float | None, wait_time_seconds: float
    ) -> LetterHandler:
        lease = visibility_timeout
        return LetterHandler(
            mailbox=self._mailbox.name,
            function=self._handle,
            options={
                "visibility_timeout": self._visibility_timeout if lease is None else lease,
                "wait": wait_time_seconds,
            },
        )

    def began(self, member: Member) -> None:
        super().began(member)
        self._consumer = cast("Consumer", member)

    async def _run(self, turns: int | None, visibility: float | None, wait: float) -> None:
        async with assembled(
            self.post, [self], visibility_timeout=visibility, wait_time_seconds=wait
        ) as members:
            if self._is_shut:
                return
            stop = asyncio.Event()
            sweeping = asyncio.create_task(members["sweep"].run(stop))
            try:
                await cast("Consumer", members[self.member]).run_turns(turns)
            finally:
                stop.set()
                await sweeping

    def _handle(self, kept: Kept) -> object:
        age = (self.post.clock.now() - kept.head.dead_at).total_seconds()
        if 0 < self._mailbox.default_ttl < age:
            return "discarded"
        return self._handler(dead_letter(kept, self._mailbox.decode_dead))
