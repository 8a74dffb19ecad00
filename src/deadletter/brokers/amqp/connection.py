"""
One connection to the broker: handshake, frames, heartbeats, closing.

AMQP 0-9-1: protocol header 4.2.2, connection class 2.2.4, frame reader 4.2.3, channel
multiplexing 4.3, heartbeats 4.2.7, closing 2.3.7. Blocked notifications are RabbitMQ's.

A connection never reconnects. It ends at the first malformed frame, and if a frame that
has begun is not complete in time. Its end closes all its channels. Users then open a new
connection, so nobody settles deliveries of the old one on the new one.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from pamqp import commands as spec
from pamqp import frame as rare
from pamqp.base import Frame
from pamqp.header import ProtocolHeader

from deadletter.kit import context

from . import frames
from .address import Address
from .channel import Channel
from .errors import Closed, Gone

_TIMEOUT: Final = 10.0  # seconds for any answer
F = TypeVar("F", bound=Frame)

_FRAME_MAX: Final = 131_072
_CHANNELS: Final = 2_000  # at once; the default limit of brokers is 2,047
_CLIENT_PROPERTIES: Final[dict[str, Any]] = {
    "product": "deadletter",
    "capabilities": {
        "authentication_failure_close": True,
        "basic.nack": True,
        "connection.blocked": True,
        "consumer_cancel_notify": True,
        "publisher_confirms": True,
    },
}


class Connection(asyncio.Protocol):
    """An AMQP 0-9-1 connection, as a protocol of asyncio."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.frame_max = _FRAME_MAX
        self.server: dict[str, Any] = {}
        self.ended: Exception | None = None
        self.blocked = ""  # why the broker accepts no messages now
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
        self._leaving: set[int] = set()  # channels that the broker is still closing
        self._last = 0
        self._rest = b""
        self._began = 0.0  # time at which the incomplete frame began
        self._heard = self._loop.time()
        self._ticker: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[Frame] | None = None
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the protocol header (4.2.2)."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(ProtocolHeader().marshal())

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the network connection is gone."""
        gone = Gone(str(exc) if exc else "the broker closed the connection")
        gone.__cause__ = exc
        self.end(gone)
        self._gone.set()

    def pause_writing(self) -> None:
        """Pause writers: the send buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resume writers."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Read complete frames, and pass each to its channel."""
        self._heard = self._loop.time()
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        prefix = frames.prefix.unpack_from
        channels = self._channels
        try:
            while size - at > 7:
                kind, number, length = prefix(data, at)
                end = at + 7 + length
                if length > self.frame_max:
                    raise ValueError(f"a frame of {length:,} bytes")  # noqa: TRY301
                if size <= end:
                    break
                frames.check_end(data, end)
                payload = data[at + 7 : end]
                at = end + 1
                channel = channels.get(number)
                if channel is not None:
                    channel.take(kind, payload)
                else:
                    self._take(kind, number, payload)
        except Exception as error:  # noqa: BLE001 -- what follows is unreadable
            self.end(Gone(f"the broker sent a malformed frame: {error!r}"))
            return
        if at or not self._rest:
            self._began = self._heard
        self._rest = data[at:]

    # Called by users.

    async def open(self) -> None:
        """Log in and open the virtual host; raises Closed with the broker's reason."""
        address = self.address
        try:
            async with asyncio.timeout(_TIMEOUT):
                start = _expected(await self._expect(), spec.Connection.Start)
                self.server = dict(start.server_properties)
                secret = f"\0{address.user}\0{address.password}"
                hello = spec.Connection.StartOk(
                    client_properties=_CLIENT_PROPERTIES, response=secret
                )
                tune = _expected(await self._answer(hello), spec.Connection.Tune)
                self.frame_max = min(_FRAME_MAX, tune.frame_max or _FRAME_MAX)
                self.send_rare(
                    spec.Connection.TuneOk(
                        channel_max=tune.channel_max,
                        frame_max=self.frame_max,
                        heartbeat=address.heartbeat,
                    )
                )
                await self._answer(spec.Connection.Open(virtual_host=address.vhost))
        except BaseException:
            self.end(Gone("the connection was abandoned while opening"))
            raise
        self._opening = None
        self._tick()

    async def channel(self) -> Channel:
        """Open a channel."""
        self.check()
        number = self._number()
        channel = self._channels[number] = Channel(self, number)
        channel.on_closed.append(lambda: self._channels.pop(number, None))
        await channel.call(spec.Channel.Open())
        return channel

    def _number(self) -> int:
        """Return a free channel number, the one unused for longest."""
        for _ in range(_CHANNELS):
            self._last = self._last % _CHANNELS + 1
            if self._last not in self._channels and self._last not in self._leaving:
                return self._last
        raise Gone(f"all {_CHANNELS} channels are in use")

    def check(self) -> None:
        """Raise the reason if the connection has ended."""
        if self.ended is not None:
            raise self.ended

    def send(self, data: bytes) -> None:
        """Write frames."""
        self.check()
        assert self._transport is not None
        self._transport.write(data)

    def leave(self, channel: int) -> None:
        """Ignore frames of a channel until the broker confirms that it is closed."""
        self._leaving.add(channel)

    def send_rare(self, method: Frame, channel: int = 0) -> None:
        """Write one of the rare methods."""
        self.send(rare.marshal(method, channel))

    async def drained(self) -> None:
        """Wait until the send buffer has room."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self._writable.wait()
            except TimeoutError:
                self.end(Gone(f"the broker has read nothing for {_TIMEOUT:.0f} seconds"))
            self.check()

    def end(self, error: Exception) -> None:
        """End the connection and all its channels."""
        if self.ended is not None:
            return
        self.ended = error
        self._writable.set()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(error)
            self._opening.exception()  # retrieved: its waiter may be gone
        for channel in list(self._channels.values()):
            channel.closed_by(error)

    async def close(self) -> None:
        """Close in order (2.3.7): the broker has processed all frames when it answers."""
        if self.ended is not None:
            return
        self._opening = self._loop.create_future()
        with suppress(Closed, OSError):
            self.send_rare(
                spec.Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0)
            )
            async with asyncio.timeout(5):
                await self._opening
        self.end(Gone("the connection is closed"))
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._gone.wait()

    async def _expect(self) -> Frame:
        self.check()
        if self._opening is None:
            self._opening = self._loop.create_future()
        return await self._opening

    async def _answer(self, method: Frame) -> Frame:
        self._opening = self._loop.create_future()
        self.send_rare(method)
        return await self._opening

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        """Process a frame of no open channel."""
        if number in self._leaving:
            if kind == frames.METHOD and frames.method_of(payload) == frames.CLOSE_OK:
                self._leaving.discard(number)
        elif number == 0 and kind == frames.METHOD:
            self._on_method(payload)
        elif number or kind != frames.HEARTBEAT or payload:
            raise ValueError(f"a frame of kind {kind} on channel {number}")

    def _on_method(self, payload: bytes) -> None:
        method = rare.unmarshal(frames.whole(payload))[2]
        if isinstance(method, spec.Connection.Close):
            with suppress(Closed):
                self.send_rare(spec.Connection.CloseOk())
            self.end(_said(method))
        elif isinstance(method, spec.Connection.Blocked):
            self.blocked = method.reason or "an alarm"
        elif isinstance(method, spec.Connection.Unblocked):
            self.blocked = ""
        elif isinstance(method, Frame):
            if self._opening is None:
                if self._ticker is not None:
                    raise ValueError(f"unexpected method {method.name}")
                self._opening = self._loop.create_future()
            if not self._opening.done():
                self._opening.set_result(method)

    def _tick(self) -> None:
        """Send a heartbeat, and check that the broker sent something (4.2.7)."""
        every = self.address.heartbeat
        if not every or self.ended is not None:
            return
        if self._loop.time() - self._heard > 2 * every:
            self.end(Gone(f"the broker has been silent for {2 * every} seconds"))
            return
        if self._rest and self._loop.time() - self._began > _TIMEOUT:
            self.end(Gone(f"the broker has not completed a frame for {_TIMEOUT:.0f} seconds"))
            return
        self.send(frames.A_HEARTBEAT)
        self._ticker = self._loop.call_later(min(every, _TIMEOUT) / 2, self._tick)


async def connect(address: Address) -> Connection:
    """Open a connection; raises Closed or OSError."""
    loop = asyncio.get_running_loop()
    make: Callable[[], Connection] = lambda: Connection(address)  # noqa: E731
    async with asyncio.timeout(_TIMEOUT):
        _, connection = await loop.create_connection(
            make, address.host, address.port, ssl=tls_context(address)
        )
    await connection.open()
    return connection


def _expected(method: Frame, kind: type[F]) -> F:
    if not isinstance(method, kind):
        raise Gone(f"the broker sent {method.name} instead of {kind.__name__}")
    return method


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Return the TLS context of an address; None without TLS."""
    if not address.tls:
        return None
    return context("RabbitMQ", address.cafile, address.certfile, address.keyfile)


def _said(close: spec.Connection.Close) -> Closed:
    return Closed(close.reply_code or 0, close.reply_text or "")


class Reconnector:
    """The current connection to a broker: opened when needed, and again when broken."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    async def connection(self) -> Connection:
        """Return the open connection, or a new one; raises Closed or OSError."""
        async with self._lock:
            if self._closed:
                raise Closed(0, "the connection was closed by us")
            if self._connection is None or self._connection.ended is not None:
                self._connection = await connect(self._address)
            return self._connection

    def end(self) -> None:
        """End the current connection; the next use opens another."""
        if self._connection is not None:
            self._connection.end(Gone("the connection was abandoned"))

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()
