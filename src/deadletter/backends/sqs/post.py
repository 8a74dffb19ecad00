"""Sending: new messages, and copies that take the place of what was released."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from msgspec import structs

from deadletter.core.errors import BackendError, ConfigError, NotFound, Refused
from deadletter.core.message import Message
from deadletter.ports.signing import Seal
from deadletter.ports.time import Clock, Dice

from .attic import Attic
from .errors import Gone
from .link import Entry, Link
from .registry import Queue
from .wire import MOST_DELAY, Received, Slip, entry_of, name_in, size_of

_RESERVE: Final = 512  # bytes for what is written on a message later on
_TRIES: Final = 3
MISSING: Final = "dlq-claim-missing"  # the header of a message without its body


class Post:
    """Puts messages into queues."""

    def __init__(
        self, link: Link, attic: Attic | None, *, clock: Clock, dice: Dice
    ) -> None:
        self.seal = Seal()
        self._link = link
        self._attic = attic
        self._clock = clock
        self._dice = dice

    async def send(
        self, queue: Queue, entries: Sequence[Entry]
    ) -> list[BackendError | None]:
        """Send entries, in order where the queue keeps one; says what failed."""
        failures = await self._link.batch(
            "send_message_batch",
            queue.url,
            entries,
            size=size_of,
            in_order=queue.fifo,
            tries=_TRIES,
        )
        # What SQS says of claims that are over, it also says of wrong content.
        return [Refused(str(f)) if isinstance(f, Gone) else f for f in failures]

    async def fresh(
        self, queue: Queue, message: Message, slip: Slip, delay: float
    ) -> Entry:
        """A new message; Refused when it is too large and there is no attic."""
        slip, wait = self._timed(queue, slip, delay)
        entry = self._entry(queue, message, slip, wait)
        size, limit = size_of(entry), queue.limit - _RESERVE
        if size <= limit:
            return entry
        if self._attic is not None:
            key = self._dice.new_id()
            entry = self._entry(queue, message, structs.replace(slip, claim=key), wait)
            if size_of(entry) <= limit:
                await self._attic.put(key, message.body)
                return entry
        advice = "shorten it, or keep large bodies elsewhere with ?claim_check="
        if self._attic is not None:
            advice = "it is the headers that are too large: shorten them"
        raise Refused(
            f"message {message.id!a} takes {size} bytes with its headers, and the queue"
            f" {queue.name} no more than {limit}: {advice}"
        )

    def copy(
        self, queue: Queue, message: Message, slip: Slip, delay: float
    ) -> Entry | None:
        """A message that was released; None when it is too large to be sent again."""
        slip, wait = self._timed(queue, slip, delay)
        for shorter in (slip, structs.replace(slip, history=b"")):
            entry = self._entry(queue, message, shorter, wait)
            if size_of(entry) <= queue.limit:
                return entry
        return None

    async def whole(self, received: Received) -> Message:
        """The message with its body, wherever that was kept."""
        message, slip = received.message, received.slip
        if slip.form != "claim":
            return message
        if self._attic is None:
            raise ConfigError(
                f"the body of message {message.id!a} is kept elsewhere because it was"
                " too large: open the engine with the ?claim_check= its sender used"
            )
        try:
            return structs.replace(message, body=await self._attic.get(slip.claim))
        except NotFound as error:
            # Somebody must see it, rather than it going round for ever.
            told = (MISSING, str(error).encode())
            return structs.replace(message, headers=(*message.headers, told))

    async def discard(self, slip: Slip) -> None:
        """Its message is gone, so the body goes as well."""
        if slip.claim and self._attic is not None:
            await self._attic.delete(slip.claim)

    def until_due(self, slip: Slip) -> float:
        """How many seconds it is still too early for it."""
        if slip.due is None:
            return 0.0
        return (slip.due - self._clock.now()).total_seconds()

    def _timed(self, queue: Queue, slip: Slip, delay: float) -> tuple[Slip, int]:
        """When it is due, and for how long SQS is asked to wait with it."""
        now = self._clock.now()
        delay = _shorter(delay, slip.expires_at, now)
        wait = ceil(delay)
        if wait <= MOST_DELAY and not (queue.fifo and wait):
            return structs.replace(slip, due=None), wait
        due = now + timedelta(seconds=delay)
        # In a FIFO queue a message cannot wait by itself.
        return structs.replace(slip, due=due), 0 if queue.fifo else MOST_DELAY

    def _entry(self, queue: Queue, message: Message, slip: Slip, wait: int) -> Entry:
        entry = entry_of(
            message,
            slip,
            group=queue.name if queue.fifo else None,
            queue=name_in(queue.url),
            keys=self.seal.keys,
        )
        # Zero is a delay too: without it the queue's own would hold.
        return entry if queue.fifo else {**entry, "DelaySeconds": wait}


def _shorter(delay: float, expires_at: datetime | None, now: datetime) -> float:
    """The delay, which ends when the message expires."""
    if expires_at is not None:
        delay = min(delay, (expires_at - now).total_seconds())
    return max(0.0, delay)
