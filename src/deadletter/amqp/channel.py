"""
One channel of a connection: questions and answers, deliveries, confirms.

A channel that is told what cannot follow what it was told before raises a ValueError,
and its connection ends. Something was changed on the way, and of what it was about
nobody knows: a delivery that is overlooked would be with nobody for as long as the
connection lasts.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from pamqp import commands as spec
from pamqp import frame as rare
from pamqp.base import Frame

from . import frames
from .errors import Closed
from .frames import Content, Publishing

_PATIENCE: Final = 10.0  # seconds for any answer
# Seconds without any confirm. A queue that had no leader yet when we published, as
# after a restart of the broker, may never confirm it; another channel is heard.
_STUCK: Final = 10.0

Deliver = Callable[[Content], None]
Target: TypeAlias = str | tuple[str, str]
"""A queue, or an exchange and a routing key."""


class Wire(Protocol):
    """What a channel needs of its connection."""

    frame_max: int
    blocked: str

    def send(self, data: bytes) -> None: ...
    def send_rare(self, method: Frame, channel: int = 0) -> None: ...
    def leave(self, channel: int) -> None: ...
    def end(self, error: Exception) -> None: ...
    async def drained(self) -> None: ...


class Batch:
    """Messages whose confirms are awaited together."""

    def __init__(self, queues: set[str], first: int, left: int) -> None:
        self.queues = queues
        self.first = first  # number of its first message
        self.left = left
        self.nowhere: set[str] = set()  # queues that were not there
        self.returned: list[bytes] = []  # headers of messages that came back
        self.refused: set[int] = set()  # places of messages that it did not take
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirm(self, number: int, *, taken: bool) -> None:
        """Note that the broker has one more message, or that it never will."""
        self.left -= 1
        if not taken:
            self.refused.add(number - self.first)
        if not self.left and not self.done.done():
            self.done.set_result(None)


class _Waiting(NamedTuple):
    """Somebody who has asked, and the names of what the broker may answer."""

    answer: "asyncio.Future[Frame | Content | None]"
    names: Sequence[str]


class Channel:
    """Closed by the broker it stays closed; its deliveries are somebody else's then."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.number = number
        self.closed: Exception | None = None
        self.on_closed: list[Callable[[], object]] = []
        self.on_deliver: Deliver = _nobody
        self.on_cancelled: Callable[[], None] = lambda: None
        self._wire = wire
        self._answers: deque[_Waiting] = deque()
        self._published = 0
        self._batches: dict[int, Batch] = {}  # by the number of each message
        self._ways: dict[Target, Publishing] = {}
        # The message that is coming in.
        self._tag = 0
        self._delivered = 0  # deliveries of this channel so far
        self._redelivered = False
        self._asked_for = False
        self._returning: list[Batch] = []  # batches that it may have come back from
        self._header = b""
        self._wants_header = False
        self._missing = 0  # bytes of its body
        self._body: list[bytes] = []

    # What the connection calls.

    def take(self, kind: int, payload: bytes) -> None:
        """A frame for us."""
        if kind == frames.BODY:
            if len(payload) > self._missing:
                raise ValueError(f"{len(payload)} bytes instead of {self._missing}")
            self._missing -= len(payload)
            if self._missing > 0 or self._body:
                self._body.append(payload)
                if self._missing > 0:
                    return
                payload = b"".join(self._body)
                self._body = []
            self._complete(payload)
        elif kind == frames.HEADER:
            if not self._wants_header:
                raise ValueError("a header without a message")
            self._wants_header = False
            self._header = payload
            self._missing = frames.body_size(payload)
            if not self._missing:
                self._complete(b"")
        elif kind != frames.METHOD or self._wants_header or self._missing:
            raise ValueError(f"a frame of kind {kind} within a message")
        else:
            self._on_method(payload)

    def closed_by(self, error: Exception) -> None:
        """It is over: everybody who waits is told."""
        if self.closed is not None:
            return
        self.closed = error
        waiting: list[asyncio.Future[Any]] = [one.answer for one in self._answers]
        waiting += {batch.done for batch in self._batches.values()}
        self._answers.clear()
        self._batches.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # its waiter may have gone
        for tell in self.on_closed:
            tell()

    # What we do with it.

    async def call(self, method: Frame) -> Frame | Content | None:
        """Ask, and wait for the answer."""
        return await self.ask(method)

    async def ask(
        self, method: Frame, patience: float = _PATIENCE
    ) -> Frame | Content | None:
        """Ask, and wait so long for the answer; without one the connection is over."""
        self.check()
        answer: asyncio.Future[Frame | Content | None]
        answer = asyncio.get_running_loop().create_future()
        self._wire.send_rare(method, self.number)
        self._answers.append(_Waiting(answer, method.valid_responses))
        done, _ = await asyncio.wait({answer}, timeout=patience)
        if not done:
            error = Closed(0, f"no answer to {method.name} for {patience:.0f} seconds")
            self._wire.end(error)
            raise error
        return answer.result()

    async def publish(
        self, messages: Iterable[tuple[Target, bytes, bytes]], *, after: bytes = b""
    ) -> Batch:
        """
        Send (target, properties, body) and wait until the broker has them all.

        A target is a queue, or an exchange with a routing key. The frames `after` are
        written together with the messages, behind them.
        """
        self.check()
        parts: list[bytes] = []
        queues: set[str] = set()
        for target, properties, body in messages:
            way = self._ways.get(target)
            if way is None:
                exchange, key = ("", target) if isinstance(target, str) else target
                way = Publishing(self.number, key, self._wire.frame_max, exchange)
                self._ways[target] = way
            parts.append(way.frames(properties, body))
            queues.add(target if isinstance(target, str) else target[1])
        batch = Batch(queues, self._published + 1, len(parts))
        for number in range(self._published + 1, self._published + len(parts) + 1):
            self._batches[number] = batch
        self._published += len(parts)
        self._wire.send(b"".join((*parts, after)))
        await self._wire.drained()
        await self._confirmed(batch)
        return batch

    def ack(self, tags: set[int], unacked: Iterable[int]) -> None:
        """Forget deliveries, given all that are unacked, oldest first."""
        self.check()
        self._wire.send(b"".join(frames.acks(self.number, tags, unacked)))

    def check(self) -> None:
        """Raise if it is closed."""
        if self.closed is not None:
            raise self.closed

    def give_back(self, tags: Iterable[int]) -> None:
        """Put deliveries back where they were, as far as the broker can."""
        self.check()
        for tag in tags:
            nack = spec.Basic.Nack(delivery_tag=tag, requeue=True)
            self._wire.send_rare(nack, self.number)

    def close(self) -> None:
        """Close it; what was delivered and not settled goes back."""
        if self.closed is None:
            self._wire.send_rare(_closing(), self.number)
            self._wire.leave(self.number)
            self.closed_by(Closed(0, "the channel is closed"))

    async def leave(self) -> None:
        """Close it, and return when what was not settled is back."""
        if self.closed is None:
            await self.call(_closing())
            self.closed_by(Closed(0, "the channel is closed"))

    async def _confirmed(self, batch: Batch) -> None:
        """Wait as long as it goes on; a channel that got stuck is given up."""
        while True:
            left = batch.left
            done, _ = await asyncio.wait({batch.done}, timeout=_STUCK)
            if done:
                batch.done.result()
                return
            if batch.left == left:
                break
        why = self._wire.blocked
        self.close()
        raise Closed(
            0,
            f"the broker takes no messages at the moment ({why})"
            if why
            else f"it has confirmed nothing for {_STUCK:.0f} seconds",
        )

    def _complete(self, body: bytes) -> None:
        if not self._tag:  # a message that came back
            for batch in self._returning:
                batch.returned.append(self._header)
            return
        asked_for = self._asked_for
        content = Content(self._tag, self._redelivered, self._header, body, asked_for)
        if asked_for:
            self._resolve(content, spec.Basic.GetOk.name)
        else:
            self.on_deliver(content)

    def _on_method(self, payload: bytes) -> None:
        method = frames.method_of(payload)
        if method == frames.DELIVER:
            self._tag, self._redelivered = frames.delivered(payload)
            self._count_delivery()
            self._asked_for = False
            self._wants_header = True
        elif method == frames.ACK:
            self._confirm(*frames.confirmed(payload), taken=True)
        elif method == frames.GET_OK:
            self._tag, self._redelivered = frames.got(payload)
            self._count_delivery()
            self._asked_for = True
            self._wants_header = True
        elif method == frames.NACK:
            self._confirm(*frames.confirmed(payload), taken=False)
        elif method == frames.RETURN:
            self._tag = 0
            self._wants_header = True
            queue = frames.returned(payload)
            batches = set(self._batches.values())
            self._returning = [one for one in batches if queue in one.queues]
            for batch in self._returning:
                batch.nowhere.add(queue)
        else:
            self._on_rare(rare.unmarshal(frames.whole(payload))[2])

    def _count_delivery(self) -> None:
        """
        Check that the broker counts on by one.

        By another number we would ack a message that nobody has handled.
        """
        self._delivered += 1
        if self._tag != self._delivered:
            raise ValueError(f"delivery {self._tag} instead of {self._delivered}")

    def _on_rare(self, method: object) -> None:
        if isinstance(method, spec.Channel.Close):
            self._wire.send_rare(spec.Channel.CloseOk(), self.number)
            self.closed_by(Closed(method.reply_code or 0, method.reply_text or ""))
        elif isinstance(method, spec.Basic.Cancel):
            self.on_cancelled()
        elif isinstance(method, Frame):
            answer = None if isinstance(method, spec.Basic.GetEmpty) else method
            self._resolve(answer, method.name)

    def _resolve(self, answer: Frame | Content | None, name: str) -> None:
        if not self._answers or name not in self._answers[0].names:
            raise ValueError(f"{name}, for which nobody has asked")
        future = self._answers.popleft().answer
        if not future.done():
            future.set_result(answer)

    def _confirm(self, tag: int, multiple: bool, *, taken: bool) -> None:
        if tag not in self._batches:
            raise ValueError(f"a confirm of message {tag}, which is not awaited")
        if not multiple:
            self._batches.pop(tag).confirm(tag, taken=taken)
            return
        numbers = []
        for number in self._batches:  # in the order they were sent
            if number > tag:
                break
            numbers.append(number)
        for number in numbers:
            self._batches.pop(number).confirm(number, taken=taken)


def _closing() -> spec.Channel.Close:
    return spec.Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0)


def _nobody(_: Content) -> None:
    """Nobody consumes here."""
