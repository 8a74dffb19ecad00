"""
A wire between a client and its server that can be bad in every way a network is.

Clients that follow addresses their server tells them (Kafka; MongoDB without
`directConnection=true`) go around it.
"""

import asyncio
import random
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HOST = "127.0.0.1"


class FaultProxy:
    """
    Forwards to one server. What goes wrong is set at any time, by attribute.

    `latency` holds every piece back for so many seconds, each way. `blackhole` lets
    nothing through and says nothing, until it is over: then all of it arrives.
    `refuse` turns new connections away. `cut_after` resets a connection once it has
    carried so many bytes to the server; those bytes did not all arrive.

    `half` lets every connection, old or new, carry so many more bytes from the server,
    and nothing after them, for good: a frame breaks off in the middle. `drip` lets one
    byte pass from the server in so many seconds. `flip` turns one bit of every so many
    bytes, on the average; `flips` counts them. With `flips_requests` off that happens
    only to what the server says, with `flips_answers` off only to what it is told.
    """

    def __init__(self, port: int, host: str = HOST) -> None:
        self.latency = 0.0
        self.refuse = False
        self.cut_after: int | None = None
        self.half: int | None = None
        self.drip = 0.0
        self.flip: int | None = None
        self.flips = 0
        self.flips_requests = True
        self.flips_answers = True
        self.port = 0
        self.accepted = 0
        self._to = (host, port)
        self._wires: set[tuple[StreamWriter, StreamWriter]] = set()
        self._dice = random.Random(20261117)
        self._open = asyncio.Event()
        self._open.set()

    @property
    def blackhole(self) -> bool:
        return not self._open.is_set()

    @blackhole.setter
    def blackhole(self, on: bool) -> None:
        if on:
            self._open.clear()
        else:
            self._open.set()

    def turn_to(self, port: int) -> None:
        """Lead to another server from now on, as a name does after a failover."""
        self._to = (self._to[0], port)
        self.reset()

    def reset(self) -> None:
        """Every connection ends with an RST, as when a machine is gone."""
        for wire in list(self._wires):
            for side in wire:
                _reset(side)

    def cut(self) -> None:
        """Every connection ends in good order, in the middle of whatever it said."""
        for wire in list(self._wires):
            for side in wire:
                side.close()

    def through(self, url: str) -> str:
        """The same URL, led through this proxy."""
        host, port = self._to
        direct = f"{host}:{port}"
        if direct not in url:
            raise ValueError(f"this proxy leads to {direct}, which {url} does not name")
        return url.replace(direct, f"{HOST}:{self.port}")

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.accepted += 1
        if self.refuse:
            _reset(writer)
            return
        try:
            from_server, to_server = await asyncio.open_connection(*self._to)
        except OSError:
            _reset(writer)
            return
        wire = (writer, to_server)
        self._wires.add(wire)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, to_server, wire, counts=True))
                both.create_task(self._carry(from_server, writer, wire))
        finally:
            self._wires.discard(wire)
            for side in wire:
                side.close()

    async def _carry(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        wire: tuple[StreamWriter, StreamWriter],
        *,
        counts: bool = False,
    ) -> None:
        carried = 0
        left: int | None = None  # bytes until this connection falls silent for good
        try:
            while piece := await reader.read(65_536):
                carried += len(piece)
                if not counts:
                    left = self.half if left is None else left
                    if left is not None:
                        piece, left = piece[:left], max(0, left - len(piece))
                if counts and self.cut_after is not None and carried >= self.cut_after:
                    for side in wire:
                        _reset(side)
                    return
                await asyncio.sleep(self.latency)
                await self._open.wait()
                if not counts and self.drip:
                    piece = await self._dripped(piece, writer)
                if self.flips_requests if counts else self.flips_answers:
                    piece = self._flipped(piece)
                writer.write(piece)
                await writer.drain()
            writer.close()
        except OSError:
            for side in wire:
                _reset(side)

    async def _dripped(self, piece: bytes, writer: StreamWriter) -> bytes:
        """Let bytes pass one by one; return what is left when that is over."""
        at = 0
        while at < len(piece) and self.drip:
            writer.write(piece[at : at + 1])
            await writer.drain()
            at += 1
            await asyncio.sleep(self.drip)
        return piece[at:]

    def _flipped(self, piece: bytes) -> bytes:
        if self.flip is None:
            return piece
        changed = bytearray(piece)
        at = int(self._dice.expovariate(1 / self.flip))
        while at < len(changed):
            changed[at] ^= 1 << self._dice.randrange(8)
            self.flips += 1
            at += 1 + int(self._dice.expovariate(1 / self.flip))
        return bytes(changed)


@asynccontextmanager
async def fault_proxy(port: int, host: str = HOST) -> AsyncIterator[FaultProxy]:
    """A proxy to that port, as long as the block lasts."""
    proxy = FaultProxy(port, host)
    listener = await asyncio.start_server(proxy._serve, HOST, 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        proxy.blackhole = False
        proxy.reset()
        await listener.wait_closed()


def _reset(writer: StreamWriter) -> None:
    endpoint = writer.get_extra_info("socket")
    if endpoint is not None and endpoint.fileno() >= 0:
        at_once = struct.pack("ii", 1, 0)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    writer.transport.abort()
