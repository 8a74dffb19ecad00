"""
The AMQP client reads whatever bytes come: it reads frames, or ends the connection.

AMQP 0-9-1, sections 4.2.3 (frames), 4.2.6 (content) and 4.3 (channels). Hypothesis makes
the bytes: arbitrary ones, frames cut anywhere, frames that are too large, frames for
channels that are not open.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands as spec
from pamqp import frame

from deadletter.brokers.amqp.address import read_url
from deadletter.brokers.amqp.channel import Channel
from deadletter.brokers.amqp.connection import Connection
from deadletter.brokers.amqp.frames import (
    BODY,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    Content,
    Publishing,
    prefix,
)
from engines.test_amqp_damage import Out, delivery, opened

KINDS = (METHOD, HEADER, BODY, HEARTBEAT)
bodies = st.lists(st.binary(max_size=40), max_size=6)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def a_frame(kind: int, channel: int, payload: bytes, end: int = END) -> bytes:
    return prefix.pack(kind, channel, len(payload)) + payload + bytes((end,))


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    """Cut data at these places, wherever they are."""
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(at)]


def all_deliveries(found: list[bytes]) -> bytes:
    return b"".join(delivery(tag, body) for tag, body in enumerate(found, 1))


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_arbitrary_bytes_never_raise_and_deliver_nothing(chunks: list[bytes]) -> None:
    async def test() -> None:
        connection, channel, came = await opened()
        for chunk in chunks:
            connection.data_received(chunk)
        assert came == []
        # Ended, or still waiting for the rest of a frame that is within the limit.
        rest = connection._rest
        if connection.ended is None and len(rest) > 7:
            assert prefix.unpack_from(rest)[2] <= connection.frame_max
        assert (channel.closed is not None) or connection.ended is None

    run(test)


@given(bodies, st.lists(st.integers(0, 10**6), max_size=12))
def test_frames_cut_anywhere_are_read_as_if_whole(found: list[bytes], places: list[int]) -> None:
    async def test() -> None:
        connection, _, came = await opened()
        for piece in cuts(all_deliveries(found), places):
            connection.data_received(piece)
        assert connection.ended is None
        assert [(one.tag, one.body) for one in came] == list(enumerate(found, 1))

    run(test)


@given(bodies, st.integers(0, 10**6))
def test_a_stream_that_stops_within_a_frame_delivers_whole_messages_only(
    found: list[bytes], place: int
) -> None:
    data = all_deliveries(found)
    ends = [len(all_deliveries(found[:n])) for n in range(len(found) + 1)]

    async def test() -> None:
        at = place % (len(data) + 1)
        connection, _, came = await opened()
        connection.data_received(data[:at])
        assert connection.ended is None
        assert len(came) == sum(end <= at for end in ends) - 1

    run(test)


@given(st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 2**32 - 1 - 131_072))
def test_a_frame_above_the_limit_ends_the_connection_before_its_payload_comes(
    kind: int, channel: int, more: int
) -> None:
    async def test() -> None:
        connection, one, came = await opened()
        connection.data_received(prefix.pack(kind, channel, connection.frame_max + more) + b"x")
        assert connection.ended is not None
        assert one.closed is connection.ended
        assert came == []

    run(test)


@given(st.integers(2, 2**16 - 1), st.sampled_from(KINDS), st.binary(max_size=50))
def test_a_frame_for_a_channel_that_is_not_open_ends_the_connection(
    channel: int, kind: int, payload: bytes
) -> None:
    async def test() -> None:
        connection, _, came = await opened()
        connection.data_received(delivery(1, b"before") + a_frame(kind, channel, payload))
        assert connection.ended is not None
        assert [one.body for one in came] == [b"before"]

    run(test)


@given(st.sampled_from(KINDS), st.binary(max_size=50), st.integers(0, 255).filter(END.__ne__))
def test_a_frame_without_its_end_octet_ends_the_connection(
    kind: int, payload: bytes, end: int
) -> None:
    async def test() -> None:
        connection, _, came = await opened()
        connection.data_received(a_frame(kind, 1, payload, end))
        assert connection.ended is not None
        assert came == []

    run(test)


@given(st.sampled_from((0, 3, 4, 5, 6, 7, 9, 255)), st.binary(max_size=50))
def test_an_unknown_or_misplaced_kind_of_frame_ends_the_connection(
    kind: int, payload: bytes
) -> None:
    async def test() -> None:
        connection, _, _ = await opened()
        if kind == BODY and not payload:
            return  # an empty body frame adds nothing
        connection.data_received(a_frame(kind, 1, payload))
        assert connection.ended is not None

    run(test)


@given(st.binary(min_size=1, max_size=30), st.binary(min_size=1, max_size=30))
def test_a_body_longer_than_its_header_says_ends_the_connection(body: bytes, more: bytes) -> None:
    async def test() -> None:
        connection, _, came = await opened()
        method, header, _ = _frames(delivery(1, body))
        connection.data_received(method + header + a_frame(BODY, 1, body + more))
        assert connection.ended is not None
        assert came == []

    run(test)


@given(st.binary(max_size=5_000), st.integers(9, 600))
def test_messages_published_in_frames_of_any_size_are_read_back(
    body: bytes, frame_max: int
) -> None:
    properties = b"\x10\0\x02"

    async def test() -> None:
        connection, _, came = await opened()
        sent = Publishing(1, "orders", frame_max).frames(properties, body)
        _, *content = _frames(sent)
        assert all(len(one) <= frame_max for one in content[1:])
        deliver = frame.marshal(spec.Basic.Deliver("dlq-1", 1, False, "", "orders"), 1)
        connection.data_received(deliver + b"".join(content))
        assert connection.ended is None
        assert came == [Content(1, False, content[0][7:-1], body, False)]

    run(test)


@pytest.mark.parametrize("number", [0, 2])
async def test_deliveries_on_the_wrong_channel_reach_nobody(number: int) -> None:
    connection = Connection(read_url("amqp://guest:guest@localhost"))
    connection.connection_made(Out())
    connection._channels[1] = channel = Channel(connection, 1)
    came: list[Content] = []
    channel.on_deliver = came.append

    connection.data_received(delivery(1, b"lost", channel=number))

    assert came == []
    assert connection.ended is not None


def _frames(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        end = at + 8 + prefix.unpack_from(data, at)[2]
        found.append(data[at:end])
        at = end
    return found
