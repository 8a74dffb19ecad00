"""The fault proxy does to a connection what it says."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deadletter.testing.fakes import eventually
from engines.proxy import HOST, FaultProxy, fault_proxy


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1024):
                writer.write(piece)
        except ConnectionError:
            pass
        finally:
            writer.close()

    echoing = await asyncio.start_server(echo, HOST, 0)
    port = echoing.sockets[0].getsockname()[1]
    async with echoing, fault_proxy(port) as proxy:
        yield proxy


async def call(proxy: FaultProxy) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, proxy.port)
    try:
        return await reader.read()
    finally:
        writer.close()


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hears(self, said: bytes) -> bytes:
        self.writer.write(said)
        return await self.reader.read(1024)


@pytest.fixture
async def caller(proxy: FaultProxy) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection(HOST, proxy.port)
    yield Caller(reader, writer)
    writer.close()


async def test_the_proxy_forwards_bytes_in_both_directions(caller: Caller) -> None:
    assert await caller.hears(b"hello") == b"hello"


async def test_a_cut_ends_the_connection(proxy: FaultProxy, caller: Caller) -> None:
    await caller.hears(b"hello")

    proxy.cut()

    assert await caller.reader.read() == b""


async def test_a_reset_is_felt_as_one(proxy: FaultProxy, caller: Caller) -> None:
    await caller.hears(b"hello")

    proxy.reset()

    with pytest.raises(ConnectionResetError):
        await caller.reader.read()


async def test_a_black_hole_holds_all_back_until_it_is_over(
    proxy: FaultProxy, caller: Caller
) -> None:
    await caller.hears(b"hello")
    proxy.blackhole = True
    answer = asyncio.create_task(caller.hears(b"anybody"))

    quiet, _ = await asyncio.wait([answer], timeout=0.2)
    proxy.blackhole = False

    assert not quiet
    assert await answer == b"anybody"


async def test_latency_holds_every_answer_back(proxy: FaultProxy, caller: Caller) -> None:
    proxy.latency = 0.1
    loop = asyncio.get_running_loop()
    since = loop.time()

    await caller.hears(b"hello")

    assert loop.time() - since >= 0.19  # there and back


async def test_refusing_turns_new_connections_away(proxy: FaultProxy, caller: Caller) -> None:
    await caller.hears(b"hello")
    proxy.refuse = True

    with pytest.raises(ConnectionResetError):
        await call(proxy)

    assert await caller.hears(b"still here") == b"still here"


async def test_a_connection_can_be_cut_after_so_many_bytes(
    proxy: FaultProxy, caller: Caller
) -> None:
    proxy.cut_after = 8
    assert await caller.hears(b"hello") == b"hello"

    with pytest.raises(ConnectionResetError):
        await caller.hears(b"again")


async def test_a_server_that_is_gone_looks_gone_through_the_proxy() -> None:
    async with fault_proxy(1) as proxy:
        with pytest.raises(ConnectionResetError):
            await call(proxy)

        await eventually(lambda: proxy.accepted == 1)


def test_a_url_is_led_through_the_proxy() -> None:
    proxy = FaultProxy(6379)
    proxy.port = 7000

    assert proxy.through("redis://:x@127.0.0.1:6379/0") == "redis://:x@127.0.0.1:7000/0"
    with pytest.raises(ValueError, match="does not name"):
        proxy.through("redis://elsewhere:6379/0")


async def test_a_connection_falls_silent_in_the_middle_of_an_answer(
    proxy: FaultProxy, caller: Caller
) -> None:
    proxy.half = 3
    assert await caller.hears(b"hello") == b"hel"

    answer = asyncio.create_task(caller.hears(b"again"))
    heard, _ = await asyncio.wait([answer], timeout=0.2)
    proxy.half = None  # what fell silent stays so
    later, _ = await asyncio.wait([answer], timeout=0.2)

    assert not heard
    assert not later
    answer.cancel()


async def test_answers_drip(proxy: FaultProxy, caller: Caller) -> None:
    proxy.drip = 0.05
    loop = asyncio.get_running_loop()
    since = loop.time()

    caller.writer.write(b"hello")
    answer = await caller.reader.readexactly(5)

    assert answer == b"hello"
    assert loop.time() - since >= 0.15


async def test_bits_turn_on_the_way(proxy: FaultProxy, caller: Caller) -> None:
    proxy.flips_requests = False
    proxy.flip = 50
    said = b"0" * 1000

    caller.writer.write(said)
    answer = await caller.reader.readexactly(1000)

    wrong = sum((a ^ b).bit_count() for a, b in zip(said, answer, strict=True))
    assert wrong == proxy.flips > 0
