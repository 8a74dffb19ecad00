"""Sender of new messages, and of copies that replace released messages."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from msgspec import structs

from deadletter.core.errors import BackendError, ConfigError, NotFound, Refused
from deadletter.core.message import Message
from deadletter.ports.features import Clock, Dice
from deadletter.ports.letters import Seal

from .body_store import BodyStore
from .connection import Entry, Gone, SqsService
from .message_format import MOST_DELAY, Envelope, Received, entry_of, name_in, size_of
from .registry import Queue

_RESERVE: Final = 512  # bytes for what is written on a message later on
_TRIES: Final = 3
MISSING: Final = "dlq-claim-missing"  # the header of a message without its body


class Sender:
    """Sends messages to queues."""

    def __init__(
        self, service: SqsService, body_store: BodyStore | None, *, clock: Clock, dice: Dice
    ) -> None:
        self.seal = Seal()
        self._service = service
        self._body_store = body_store
        self._clock = clock
        self._dice = dice

    async def send(self, queue: Queue, entries: Sequence[Entry]) -> list[BackendError | None]:
        """Send entries, in order if the queue is FIFO; return the error of each, or None."""
        failures = await self._service.batch(
            "send_message_batch",
            queue.url,
            entries,
            size=size_of,
            in_order=queue.fifo,
            tries=_TRIES,
        )
        # SQS reports invalid content with the same codes as ended claims.
        return [Refused(str(f)) if isinstance(f, Gone) else f for f in failures]

    async def fresh(
        self, queue: Queue, message: Message, envelope: Envelope, delay: float
    ) -> Entry:
        """Return the entry of a new message; raise Refused if it is too large."""
        envelope, wait = self._timed(queue, envelope, delay)
        entry = self._entry(queue, message, envelope, wait)
        size, limit = size_of(entry), queue.limit - _RESERVE
        if size <= limit:
            return entry
        if self._body_store is not None:
            key = self._dice.new_id()
            entry = self._entry(queue, message, structs.replace(envelope, claim=key), wait)
            if size_of(entry) <= limit:
                await self._body_store.put(key, message.body)
                return entry
        advice = "shorten it, or keep large bodies elsewhere with ?claim_check="
        if self._body_store is not None:
            advice = "it is the headers that are too large: shorten them"
        raise Refused(
            f"message {message.id!a} takes {size} bytes with its headers, and the queue"
            f" {queue.name} no more than {limit}: {advice}"
        )

    def copy(
        self, queue: Queue, message: Message, envelope: Envelope, delay: float
    ) -> Entry | None:
        """Return the entry of a released message; None if it is too large to be sent again."""
        envelope, wait = self._timed(queue, envelope, delay)
        for shorter in (envelope, structs.replace(envelope, history=b"")):
            entry = self._entry(queue, message, shorter, wait)
            if size_of(entry) <= queue.limit:
                return entry
        return None

    async def whole(self, received: Received) -> Message:
        """Return the message with its body, wherever that is stored."""
        message, envelope = received.message, received.envelope
        if envelope.form != "claim":
            return message
        if self._body_store is None:
            raise ConfigError(
                f"the body of message {message.id!a} is kept elsewhere because it was"
                " too large: open the engine with the ?claim_check= its sender used"
            )
        try:
            return structs.replace(message, body=await self._body_store.get(envelope.claim))
        except NotFound as error:
            # The handler gets it without its body, so that it does not circulate for ever.
            told = (MISSING, str(error).encode())
            return structs.replace(message, headers=(*message.headers, told))

    async def discard(self, envelope: Envelope) -> None:
        """Delete the body of a message that was deleted."""
        if envelope.claim and self._body_store is not None:
            await self._body_store.delete(envelope.claim)

    def until_due(self, envelope: Envelope) -> float:
        """Return the seconds until a message is due."""
        if envelope.due is None:
            return 0.0
        return (envelope.due - self._clock.now()).total_seconds()

    def _timed(self, queue: Queue, envelope: Envelope, delay: float) -> tuple[Envelope, int]:
        """Return the envelope with its due time, and the delay for SQS in seconds."""
        now = self._clock.now()
        delay = _shorter(delay, envelope.expires_at, now)
        wait = ceil(delay)
        if wait <= MOST_DELAY and not (queue.fifo and wait):
            return structs.replace(envelope, due=None), wait
        due = now + timedelta(seconds=delay)
        # A FIFO queue cannot delay a single message.
        return structs.replace(envelope, due=due), 0 if queue.fifo else MOST_DELAY

    def _entry(self, queue: Queue, message: Message, envelope: Envelope, wait: int) -> Entry:
        entry = entry_of(
            message,
            envelope,
            group=queue.name if queue.fifo else None,
            queue=name_in(queue.url),
            keys=self.seal.keys,
        )
        # Zero is a delay too: without it the queue's own would hold.
        return entry if queue.fifo else {**entry, "DelaySeconds": wait}


def _shorter(delay: float, expires_at: datetime | None, now: datetime) -> float:
    """Return the delay, cut off when the message expires."""
    if expires_at is not None:
        delay = min(delay, (expires_at - now).total_seconds())
    return max(0.0, delay)
