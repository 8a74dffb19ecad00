"""
Small queues on the broker that record the progress of drains and replays.

**Names** for messages without an id, which survive the drain that gave them. AMQP has
no name for a message: only a flag says that it was delivered before. So what was never
delivered before is another message, whatever it looks like. What comes again gets the
name it had, and no name is given twice.

The names of messages that were taken and are not acknowledged yet are written to a
small queue before their letters are kept. They are removed from it together with the
acknowledgement: a killed process leaves either both or none. The queue is
deleted at the end of a drain. While several drains empty one queue, one of them has
the journal; the others give new names to whatever they find.

**Marks** for copies that were sent back. A mark is written together with its copy:
a replay that was killed before the office knew of the copy finds the mark, and does not
send the copy again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
from pamqp import commands as spec
from pamqp.common import FieldTable

from deadletter.brokers.amqp import frames
from deadletter.brokers.amqp.channel import Channel, Target
from deadletter.brokers.amqp.errors import Closed
from deadletter.brokers.amqp.frames import Content

from .drain_properties import PERSISTENT

_LONGEST: Final = 200  # bytes of a queue's name that are repeated in ours
_LOCKED: Final = 405
_PATIENCE: Final = 3.0  # seconds for a broker to notice that another drain is gone
_PAUSE: Final = 0.1
_MOST: Final = 100_000  # names that are believed of a journal
_DAY: Final = 24 * 3600 * 1000  # milliseconds
_ONE: Final[FieldTable] = {
    "x-max-length": 1,
    "x-overflow": "drop-head",  # the latest state counts
    "x-expires": 14 * _DAY,  # unused: the one who was killed does not come back
}
_EXPIRES: Final[FieldTable] = {"x-expires": _DAY}  # unused
_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


class Unnamed(NamedTuple):
    """A message without an id: its digest, and whether it was delivered before."""

    digest: str
    is_again: bool
    delivery: str  # that the broker gives no other delivery


class Journal:
    """Names that a drain gives to messages, stored where the next drain finds them."""

    def __init__(self, place: str, channel: Callable[[], Awaitable[Channel]]) -> None:
        name = place
        if len(place.encode("utf-8", "surrogateescape")) > _LONGEST:
            name = sha256(place.encode("utf-8", "surrogateescape")).hexdigest()
        self.queue = f"deadletter.drain.{name}"
        self._lock = f"{self.queue}.lock"
        self._channel = channel
        self._is_open = False
        self._is_ours = False
        self._held: dict[str, str] = {}  # digests by name
        self._orphans: defaultdict[str, list[str]] = defaultdict(list)  # by digest
        self._is_past = False  # what others left comes first, and has come

    async def names(self, channel: Channel, found: Sequence[Unnamed]) -> list[str]:
        """Give names to messages; they are stored before they are returned."""
        if not self._is_open:
            await self._open(channel)
        names = [self._name(one) for one in found]
        self._is_past |= any(not one.is_again for one in found)
        if self._is_ours:
            self._held |= {n: one.digest for n, one in zip(names, found, strict=True)}
            await self._write(channel)
        return names

    async def forget(self, channel: Channel, names: Iterable[str], acks: bytes) -> None:
        """Remove names, and acknowledge their messages in the same write."""
        for name in names:
            self._held.pop(name, None)
        await self._write(channel, acks)

    def drop(self, names: Iterable[str]) -> None:
        """Drop names without a letter."""
        for name in names:
            self._held.pop(name, None)

    def covers(self, names: Iterable[str]) -> bool:
        """Return whether any of these names is stored."""
        return self._is_ours and any(name in self._held for name in names)

    def lose(self) -> None:
        """Forget the cached names after a broken connection; the next use reads them again."""
        self._is_open = self._is_ours = self._is_past = False
        self._held.clear()
        self._orphans.clear()

    async def close(self, *, is_empty: bool) -> None:
        """
        Delete it, unless it names messages that may have letters already.

        With `is_empty` the drain has seen the end of the queue: what was left behind
        by others has come, or has gone elsewhere.
        """
        if not self._is_ours:
            return
        is_done = is_empty or self._is_past or not any(self._orphans.values())
        done = (self.queue, self._lock) if is_done and not self._held else (self._lock,)
        self._is_open = self._is_ours = False
        channel = await self._channel()
        for queue in done:
            await channel.call(spec.Queue.Delete(queue=queue))
        channel.close()

    async def _open(self, channel: Channel) -> None:
        self._is_open = True
        self._is_ours = await self._is_locked() and await self._load()
        if self._is_ours:
            await channel.call(spec.Confirm.Select())

    async def _is_locked(self) -> bool:
        """Open the journal exclusively; wait for a killed drain to lose it."""
        for _ in range(round(_PATIENCE / _PAUSE)):
            channel = await self._channel()
            try:
                await channel.call(spec.Queue.Declare(queue=self._lock, exclusive=True))
            except Closed as error:
                if error.code != _LOCKED:
                    return False  # we may not: then everything gets a new name
            else:
                channel.close()
                return True
            await asyncio.sleep(_PAUSE)
        return False

    async def _load(self) -> bool:
        declare = spec.Queue.Declare(queue=self.queue, durable=True, arguments=_ONE)
        channel = await self._channel()
        try:
            await channel.call(declare)
            state = await channel.call(spec.Basic.Get(queue=self.queue))
        except Closed:
            return False
        if isinstance(state, Content):
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                for name, digest in list(_decode(state.body).items())[:_MOST]:
                    self._orphans[digest].append(name)
        await channel.leave()  # what we have read is back
        return True

    def _name(self, one: Unnamed) -> str:
        orphans = self._orphans[one.digest] if one.is_again else ()
        return orphans.pop(0) if orphans else f"{one.digest}-{one.delivery}"

    async def _write(self, channel: Channel, acks: bytes = b"") -> None:
        orphans = {n: digest for digest, ns in self._orphans.items() for n in ns}
        state = msgspec.json.encode(self._held | orphans)
        mail = [(self.queue, PERSISTENT, state)]
        await channel.publish(mail, after=acks)


class Marks:
    """Marks of the copies that one replay has sent to one queue."""

    def __init__(
        self, campaign: str, mailbox: str, channel: Callable[[], Awaitable[Channel]]
    ) -> None:
        digest = sha256(mailbox.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        self.queue = f"deadletter.back.{campaign}.{digest}"
        self._channel = channel
        self._is_open = False
        self._is_kept = False
        self._left: set[bytes] = set()  # of a process that was killed
        self._mine: set[bytes] = set()  # that the office may not know of yet

    async def sent(self, copies: Sequence[bytes]) -> set[bytes]:
        """
        Return which of these copies were sent before, unknown to the office.

        Those that are not asked for again are known to it by now.
        """
        if not self._is_open:
            self._mine.clear()
            self._is_kept = await self._load()
            self._is_open = True
        again = self._mine.intersection(copies)
        if self._mine and not again and not self._left:
            self._mine.clear()
            channel = await self._channel()
            await channel.call(spec.Queue.Purge(queue=self.queue))
            channel.close()
        found = self._left.intersection(copies)
        self._left -= found
        self._mine |= found
        return found | again

    def mail(self, copy: bytes) -> list[tuple[Target, bytes, bytes]]:
        """Return the mark of a copy, to be published right behind it."""
        return [(self.queue, PERSISTENT, copy)] if self._is_kept else []

    def note(self, copies: Iterable[bytes]) -> None:
        """Record that the broker has accepted these copies."""
        if self._is_kept:
            self._mine.update(copies)

    def lose(self) -> None:
        """Forget the cached marks after an interrupted send; the next send reads them again."""
        self._is_open = False

    async def _load(self) -> bool:
        channel = await self._channel()
        try:
            await channel.call(
                spec.Queue.Declare(queue=self.queue, durable=True, arguments=_EXPIRES)
            )
            for _ in range(_MOST):
                mark = await channel.call(spec.Basic.Get(queue=self.queue))
                if not isinstance(mark, Content):
                    break
                self._left.add(mark.body)
        except Closed:
            return False  # we may not: a copy may be sent twice by a replay killed
        await channel.leave()
        return True


def acks_of(channel: Channel, tags: set[int]) -> bytes:
    """Return frames that acknowledge these deliveries of a channel."""
    return b"".join(frames.acks(channel.number, tags, ()))  # one by one
