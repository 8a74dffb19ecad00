"""The consumer of a dead-letter mailbox."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from deadletter.core.letter import DeadLetter as Kept
from deadletter.runtime.dlq_consumer import DLQConsumer as Consumer
from deadletter.runtime.loop_group import Loop as Member
from deadletter.runtime.registration import LetterHandler

from .dead_letter import DeadLetter, to_dead_letter
from .loop_group import WAIT, Runnable, assembled, backend_of_loops
from .mailbox import BackendMailbox
from .mailbox_broker import MailboxBroker
from .message import Mailbox
from .serialization import decode_or_bytes

T = TypeVar("T")

_ACTIONS = {"replay": "replayed", "discard": "discarded", "alert": "alerted"}


class DLQConsumer(Runnable, Generic[T]):
    """
    Hands the letters of one dead-letter mailbox to a handler, one at a time.

    A handler may return its action: "replay", "discard" or "alert". A letter whose handler
    fails returns after an hour, and is never dead-lettered again. Letters older than the
    `default_ttl` of their mailbox are discarded; the office keeps its own record of them.
    """

    def __init__(
        self,
        *,
        mailbox: Mailbox[DeadLetter[T], None],
        handler: Callable[[DeadLetter[T]], object],
        visibility_timeout: float = 300,
    ) -> None:
        self._mailbox = mailbox
        self._letters: _BackendLetters | _OwnLetters
        if isinstance(mailbox, BackendMailbox):
            super().__init__(mailbox.backend)
            self._letters = _BackendLetters(mailbox)
        else:
            super().__init__(None)
            self._letters = _OwnLetters(mailbox)
        self._handler = handler
        self._visibility_timeout = visibility_timeout
        self._consumer: Consumer | None = None

    @property
    def member(self) -> str:
        return f"dlq consumer {self._mailbox.name}"

    def mailboxes(self) -> list[Mailbox[Any, Any]]:
        return [self._mailbox]

    def dead_mailboxes(self) -> list[Mailbox[Any, Any]]:
        return [self._mailbox]

    def attach(self, broker: MailboxBroker | None) -> None:
        self._letters.attach(broker)

    def run(
        self,
        *,
        max_iterations: int | None = None,
        visibility_timeout: float | None = None,
        wait_time_seconds: float = WAIT,
    ) -> None:
        """Poll `max_iterations` times, or until shutdown."""
        backend = backend_of_loops([self])
        backend.run(self._run(max_iterations, visibility_timeout, wait_time_seconds))

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Stop after the current letter; return whether it ended within the timeout."""
        if self._group is not None or self._consumer is None:
            return super().shutdown(timeout=timeout)
        self._is_shut = True
        return backend_of_loops([self]).call(self._consumer.shutdown(timeout), wait=timeout)

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
        backend = backend_of_loops([self])
        async with assembled(
            backend, [self], visibility_timeout=visibility, wait_time_seconds=wait
        ) as members:
            if self._is_shut or self._consumer is None:
                return
            stop = asyncio.Event()
            others = [member for member in members if member is not self._consumer]
            sweeping = [asyncio.create_task(member.run(stop)) for member in others]
            try:
                await self._consumer.run_turns(turns)
            finally:
                stop.set()
                await asyncio.gather(*sweeping)

    def _handle(self, kept: Kept) -> object:
        if self._letters.is_over(kept):
            return "discarded"
        did = self._handler(self._letters.letter(kept))
        return _ACTIONS.get(did, did) if isinstance(did, str) else did


class _BackendLetters:
    """The letters in a mailbox on a backend."""

    def __init__(self, mailbox: BackendMailbox[Any, Any]) -> None:
        self._mailbox = mailbox

    def attach(self, broker: MailboxBroker | None) -> None:
        """Do nothing: the mailbox has its backend."""

    def is_over(self, kept: Kept) -> bool:
        age = (self._mailbox.backend.clock.now() - kept.head.dead_at).total_seconds()
        return 0 < self._mailbox.default_ttl < age

    def letter(self, kept: Kept) -> DeadLetter[Any]:
        # A letter that was sent by hand is the body of its message.
        body = decode_or_bytes(self._mailbox.decode, kept.message.body)
        if isinstance(body, DeadLetter):
            return body
        return to_dead_letter(kept, self._mailbox.decode_dead)


class _OwnLetters:
    """The letters in a mailbox that is not on a backend."""

    def __init__(self, mailbox: Mailbox[Any, Any]) -> None:
        self._name = mailbox.name
        self._broker: MailboxBroker | None = None

    def attach(self, broker: MailboxBroker | None) -> None:
        self._broker = broker

    def is_over(self, kept: Kept) -> bool:
        return False  # its retention is the mailbox's own

    def letter(self, kept: Kept) -> Any:
        held = self._broker.source(self._name).message(kept.id) if self._broker else None
        return to_dead_letter(kept, lambda body: body) if held is None else held.body
