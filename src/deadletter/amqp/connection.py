"""
One connection to the broker: frames in, frames out, signs of life.

It never reconnects. It ends at the first frame that cannot be right, and when one that
has begun is not whole in time. When it ends, everything that went through it is told
so, and whoever needs the broker opens another: so nobody mistakes a new connection,
where old deliveries are not ours any more, for the old one.
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

from deadletter.tls import context

from . import frames
from .address import Address
from .channel import Channel
from .errors import Closed, Gone

_PATIENCE: Final = 10.0  # seconds for any answer
F = TypeVar("F", bound=Frame)

_FRAME_MAX: Final = 131_072
_CHANNELS: Final = 2_000  # at once; brokers allow 2,047 unless told otherwise
_WHO_WE_ARE: Final[dict[str, Any]] = {
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
    """Speaks AMQP 0-9-1 as long as it lasts."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.frame_max = _FRAME_MAX
        self.server: dict[str, Any] = {}
        self.ended: Exception | None = None
        self.blocked = ""  # why the broker takes no messages now
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
        self._leaving: set[int] = set()  # channels that the broker is still closing
        self._last = 0
        self._rest = b""
        self._began = 0.0  # when the frame began that is not whole yet
        self._heard = self._loop.time()
        self._ticker: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[Frame] | None = None
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(ProtocolHeader().marshal())

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody."""
        gone = Gone(str(exc) if exc else "it closed the connection")
        gone.__cause__ = exc
        self.end(gone)
        self._gone.set()

    def pause_writing(self) -> None:
        """More is on its way out than the network takes."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """...and has gone."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Hand each whole frame to whom it concerns."""
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
        except Exception as error:  # noqa: BLE001 -- nothing after it can be read
            self.end(Gone(f"it sent what cannot be read: {error!r}"))
            return
        if at or not self._rest:
            self._began = self._heard
        self._rest = data[at:]

    # What we do with it.

    async def open(self) -> None:
        """Shake hands; raises Closed with the broker's reason when it will not."""
        address = self.address
        try:
            async with asyncio.timeout(_PATIENCE):
                start = _expected(await self._expect(), spec.Connection.Start)
                self.server = dict(start.server_properties)
                secret = f"\0{address.user}\0{address.password}"
                hello = spec.Connection.StartOk(
                    client_properties=_WHO_WE_ARE, response=secret
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
            self.end(Gone("it was given up while opening"))
            raise
        self._opening = None
        self._tick()

    async def channel(self) -> Channel:
        """A new channel."""
        self.check()
        number = self._number()
        channel = self._channels[number] = Channel(self, number)
        channel.on_closed.append(lambda: self._channels.pop(number, None))
        await channel.call(spec.Channel.Open())
        return channel

    def _number(self) -> int:
        """A channel number that is free, and was not used for long."""
        for _ in range(_CHANNELS):
            self._last = self._last % _CHANNELS + 1
            if self._last not in self._channels and self._last not in self._leaving:
                return self._last
        raise Gone(f"all {_CHANNELS} channels are in use")

    def check(self) -> None:
        """Raise if it has ended."""
        if self.ended is not None:
            raise self.ended

    def send(self, data: bytes) -> None:
        """Write frames."""
        self.check()
        assert self._transport is not None
        self._transport.write(data)

    def leave(self, channel: int) -> None:
        """Expect whatever the broker still says on a channel, until it is closed."""
        self._leaving.add(channel)

    def send_rare(self, method: Frame, channel: int = 0) -> None:
        """Write a method that is not worth being fast."""
        self.send(rare.marshal(method, channel))

    async def drained(self) -> None:
        """Wait until the network takes more."""
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._writable.wait()
            except TimeoutError:
                self.end(Gone(f"it has taken nothing for {_PATIENCE:.0f} seconds"))
            self.check()

    def end(self, error: Exception) -> None:
        """Be over, for everybody who used it."""
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
            self._opening.exception()  # its waiter may have gone
        for channel in list(self._channels.values()):
            channel.closed_by(error)

    async def close(self) -> None:
        """Say good-bye: the broker has done all we asked for when it answers."""
        if self.ended is not None:
            return
        self._opening = self._loop.create_future()
        with suppress(Closed, OSError):
            self.send_rare(
                spec.Connection.Close(
                    reply_code=200, reply_text="", class_id=0, method_id=0
                )
            )
            async with asyncio.timeout(5):
                await self._opening
        self.end(Gone("it is closed"))
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
        """Take a frame that is for none of the channels."""
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
                    raise ValueError(f"{method.name}, for which nobody has asked")
                self._opening = self._loop.create_future()
            if not self._opening.done():
                self._opening.set_result(method)

    def _tick(self) -> None:
        """Give a sign of life, and look for one."""
        every = self.address.heartbeat
        if not every or self.ended is not None:
            return
        if self._loop.time() - self._heard > 2 * every:
            self.end(Gone(f"it has been silent for {2 * every} seconds"))
            return
        if self._rest and self._loop.time() - self._began > _PATIENCE:
            self.end(Gone(f"it has not ended a frame for {_PATIENCE:.0f} seconds"))
            return
        self.send(frames.A_HEARTBEAT)
        self._ticker = self._loop.call_later(min(every, _PATIENCE) / 2, self._tick)


async def connect(address: Address) -> Connection:
    """A connection that is ready; raises Closed or OSError."""
    loop = asyncio.get_running_loop()
    make: Callable[[], Connection] = lambda: Connection(address)  # noqa: E731
    async with asyncio.timeout(_PATIENCE):
        _, connection = await loop.create_connection(
            make, address.host, address.port, ssl=tls_context(address)
        )
    await connection.open()
    return connection


def _expected(method: Frame, kind: type[F]) -> F:
    if not isinstance(method, kind):
        raise Gone(f"it said {method.name} where a broker says {kind.__name__}")
    return method


def tls_context(address: Address) -> ssl.SSLContext | None:
    """What a broker with TLS is spoken to with; None where it has none."""
    if not address.tls:
        return None
    return context("RabbitMQ", address.cafile, address.certfile, address.keyfile)


def _said(close: spec.Connection.Close) -> Closed:
    return Closed(close.reply_code or 0, close.reply_text or "")
