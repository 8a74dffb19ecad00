"""
One channel of a connection (AMQP 0-9-1, section 4.3): calls, deliveries, confirms.

Calls are synchronous methods (2.2.2): answers come in the order of the calls. Content
follows its method as a header and body frames (2.3.5.2). Publisher confirms, Basic.Nack
and cancel notifications are RabbitMQ's extensions.

A frame that cannot follow the frames before it raises ValueError and ends the connection.
It was changed on the way, and what it meant is unknown. A delivery that got lost this way
would stay unacked for as long as the connection lasts.
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

_TIMEOUT: Final = 10.0  # seconds for any answer
# Seconds without any confirm. A queue that had no leader when we published, as after a
# restart of the broker, may never confirm; a new channel works.
_STUCK: Final = 10.0

Deliver = Callable[[Content], None]
Target: TypeAlias = str | tuple[str, str]
"""A queue, or an exchange and a routing key."""


class Wire(Protocol):
    """The part of a connection that a channel uses."""

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
        self.first = first  # number of the first message
        self.left = left
        self.nowhere: set[str] = set()  # queues that do not exist
        self.returned: list[bytes] = []  # headers of returned messages
        self.refused: set[int] = set()  # places of messages that the broker rejected
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirm(self, number: int, *, taken: bool) -> None:
        """Record a confirm of one message, or its rejection."""
        self.left -= 1
        if not taken:
            self.refused.add(number - self.first)
        if not self.left and not self.done.done():
            self.done.set_result(None)


class _Waiting(NamedTuple):
    """A pending call, and the names of its valid answers."""

    answer: "asyncio.Future[Frame | Content | None]"
    names: Sequence[str]


class Channel:
    """A channel; once closed it stays closed, and its deliveries belong to others."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.number = number
        self.closed: Exception | None = None
        self.on_closed: list[Callable[[], object]] = []
        self.on_deliver: Deliver = _nobody
        self.on_cancelled: Callable[[], None] = lambda: None
        self._wire = wire
        self._calls: deque[_Waiting] = deque()
        self._published = 0
        self._batches: dict[int, Batch] = {}  # by the number of each message
        self._ways: dict[Target, Publishing] = {}
        # The message that is being received.
        self._tag = 0
        self._delivered = 0  # deliveries of this channel so far
        self._redelivered = False
        self._is_answer = False
        self._returning: list[Batch] = []  # batches that it may have come back from
        self._header = b""
        self._wants_header = False
        self._missing = 0  # bytes of its body
        self._body: list[bytes] = []

    # Called by the connection.

    def take(self, kind: int, payload: bytes) -> None:
        """Process a frame of this channel."""
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
        """Close the channel, and fail all pending calls and publishes."""
        if self.closed is not None:
            return
        self.closed = error
        waiting: list[asyncio.Future[Any]] = [one.answer for one in self._calls]
        waiting += {batch.done for batch in self._batches.values()}
        self._calls.clear()
        self._batches.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: its waiter may be gone
        for tell in self.on_closed:
            tell()

    # Called by users.

    async def call(self, method: Frame) -> Frame | Content | None:
        """Call a synchronous method and return its answer."""
        return await self.ask(method)

    async def ask(self, method: Frame, patience: float = _TIMEOUT) -> Frame | Content | None:
        """Call a method; without an answer within `patience` seconds, end the connection."""
        self.check()
        answer: asyncio.Future[Frame | Content | None]
        answer = asyncio.get_running_loop().create_future()
        self._wire.send_rare(method, self.number)
        self._calls.append(_Waiting(answer, method.valid_responses))
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
        Publish (target, properties, body) and wait until the broker confirmed all.

        A target is a queue, or an exchange with a routing key. The frames `after` are
        written in the same write, behind the messages.
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
        """Ack deliveries, given all unacked ones, oldest first."""
        self.check()
        self._wire.send(b"".join(frames.acks(self.number, tags, unacked)))

    def check(self) -> None:
        """Raise the reason if the channel is closed."""
        if self.closed is not None:
            raise self.closed

    def give_back(self, tags: Iterable[int]) -> None:
        """Requeue deliveries, at their old places if the broker can."""
        self.check()
        for tag in tags:
            nack = spec.Basic.Nack(delivery_tag=tag, requeue=True)
            self._wire.send_rare(nack, self.number)

    def close(self) -> None:
        """Close without waiting; the broker requeues unacked deliveries."""
        if self.closed is None:
            self._wire.send_rare(_closing(), self.number)
            self._wire.leave(self.number)
            self.closed_by(Closed(0, "the channel is closed"))

    async def leave(self) -> None:
        """Close, and return when the broker has requeued unacked deliveries."""
        if self.closed is None:
            await self.call(_closing())
            self.closed_by(Closed(0, "the channel is closed"))

    async def _confirmed(self, batch: Batch) -> None:
        """Wait while confirms keep coming; close a channel that got stuck."""
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
            f"the broker accepts no messages at the moment ({why})"
            if why
            else f"the broker has confirmed nothing for {_STUCK:.0f} seconds",
        )

    def _complete(self, body: bytes) -> None:
        if not self._tag:  # a message that came back
            for batch in self._returning:
                batch.returned.append(self._header)
            return
        is_answer = self._is_answer
        content = Content(self._tag, self._redelivered, self._header, body, is_answer)
        if is_answer:
            self._resolve(content, spec.Basic.GetOk.name)
        else:
            self.on_deliver(content)

    def _on_method(self, payload: bytes) -> None:
        method = frames.method_of(payload)
        if method == frames.DELIVER:
            self._tag, self._redelivered = frames.delivered(payload)
            self._count_delivery()
            self._is_answer = False
            self._wants_header = True
        elif method == frames.ACK:
            self._confirm(*frames.confirmed(payload), taken=True)
        elif method == frames.GET_OK:
            self._tag, self._redelivered = frames.got(payload)
            self._count_delivery()
            self._is_answer = True
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
        Check that delivery tags increase by one.

        With a wrong tag we would ack a message that nobody has processed.
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
        if not self._calls or name not in self._calls[0].names:
            raise ValueError(f"unexpected answer {name}")
        future = self._calls.popleft().answer
        if not future.done():
            future.set_result(answer)

    def _confirm(self, tag: int, multiple: bool, *, taken: bool) -> None:
        if tag not in self._batches:
            raise ValueError(f"a confirm of message {tag}, which is not pending")
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
    """Ignore a delivery: there is no consumer."""
