"""
Bits that turn on the way from a RabbitMQ broker, every one of them.

Of a connection, what a broker sends is replayed with one bit changed. Either all
deliveries, answers and confirms come, or the connection ends at once: then the broker
delivers again. Nothing is overlooked, and nothing is counted twice.
"""

import asyncio
from typing import Any

import pytest
from pamqp import commands as spec
from pamqp import frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from deadletter.brokers.amqp.address import read_url
from deadletter.brokers.amqp.channel import Channel
from deadletter.brokers.amqp.connection import Connection
from deadletter.brokers.amqp.frames import Content

DECLARE = spec.Queue.Declare(queue="orders", passive=True)


class Out(asyncio.Transport):
    """The way to a broker that takes everything."""

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        pass


async def opened() -> tuple[Connection, Channel, list[Content]]:
    """A connection with one channel, and what is delivered to it."""
    connection = Connection(read_url("amqp://guest:guest@localhost"))
    connection.connection_made(Out())
    opening = asyncio.ensure_future(connection.channel())
    await asyncio.sleep(0)
    connection.data_received(frame.marshal(spec.Channel.OpenOk(), 1))
    channel = await opening
    connection._tick()  # as after the handshake
    came: list[Content] = []
    channel.on_deliver = came.append
    return connection, channel, came


def delivery(tag: int, body: bytes, channel: int = 1) -> bytes:
    deliver = spec.Basic.Deliver("dlq-1", tag, False, "", "orders")
    properties = spec.Basic.Properties(message_id=f"m-{tag}")
    header = ContentHeader(body_size=len(body), properties=properties)
    parts = [deliver, header, *([ContentBody(body)] if body else [])]
    return b"".join(frame.marshal(part, channel) for part in parts)


def deliveries() -> bytes:
    """Two deliveries, the answer to a question, a third, and another answer."""
    answer = frame.marshal(spec.Queue.DeclareOk("orders", 0, 1), 1)
    first = delivery(1, b"first") + delivery(2, b"")
    return first + answer + delivery(3, b"third") + answer


@pytest.mark.parametrize("piece", [1 << 20, 11])
async def test_no_turned_bit_hides_a_delivery_or_an_answer(piece: int) -> None:
    data = deliveries()
    silent = []
    for bit in range(8 * len(data)):
        connection, channel, came = await opened()
        asking = [asyncio.ensure_future(channel.call(DECLARE)) for _ in range(2)]
        await asyncio.sleep(0)
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        for at in range(0, len(changed), piece):
            connection.data_received(bytes(changed[at : at + piece]))
            if connection.ended is not None:
                break
        for _ in range(4):
            await asyncio.sleep(0)
        answered = all(one.done() for one in asking)
        whole = [one.tag for one in came] == [1, 2, 3] and answered
        if connection.ended is None and not whole:
            # A frame that seems to be longer. It has a deadline, and so has an answer.
            assert connection._rest or not answered, (divmod(bit, 8), came)
            silent.append(bit)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    lengths = 10 * 18  # bits of the lengths of all frames, up to the longest there is
    assert len(silent) <= lengths


@pytest.mark.parametrize("multiple", [False, True])
async def test_a_confirm_of_another_message_ends_the_connection(multiple: bool) -> None:
    confirm = frame.marshal(spec.Basic.Ack(delivery_tag=2, multiple=multiple), 1)
    rest = frame.marshal(spec.Basic.Ack(delivery_tag=3, multiple=not multiple), 1)
    for bit in range(8 * 11, 8 * 19):  # of the number of the message
        connection, channel, _ = await opened()
        publishing = asyncio.ensure_future(channel.publish([("orders", b"", b"x")] * 3))
        await asyncio.sleep(0)
        changed = bytearray(confirm)
        changed[bit // 8] ^= 1 << bit % 8

        connection.data_received(bytes(changed))
        connection.data_received(rest)

        assert "is not pending" in str(connection.ended)
        await asyncio.gather(publishing, return_exceptions=True)


async def test_frames_for_a_channel_being_closed_are_not_damage() -> None:
    connection, channel, came = await opened()

    channel.close()
    connection.data_received(delivery(1, b"late"))
    connection.data_received(frame.marshal(spec.Channel.CloseOk(), 1))
    assert connection.ended is None
    connection.data_received(delivery(2, b"later"))

    assert came == []
    assert "channel 1" in str(connection.ended)


async def test_a_frame_that_never_ends_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _, _ = await opened()
    now = connection._loop.time()
    monkeypatch.setattr(connection._loop, "time", lambda: now + 8)
    connection.data_received(delivery(1, b"body")[:-3])
    connection._tick()
    assert connection.ended is None
    monkeypatch.setattr(connection._loop, "time", lambda: now + 19)
    connection.data_received(b"x")

    connection._tick()

    assert "has not completed a frame" in str(connection.ended)
