"""A supervisor that answers probes for its children."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.runtime import supervisor as module
from deadletter.runtime.health import Complaint, HealthServer
from deadletter.runtime.lifeline import LISTENER_FD, inherited_listener
from deadletter.runtime.supervisor import Children, answer_probes


def joined(texts: Mapping[str, bytes]) -> bytes:
    return b"|".join(name.encode() + b":" + text for name, text in texts.items())


@asynccontextmanager
async def child(
    *complaints: Complaint, text: bytes | None = None, **options: Any
) -> AsyncIterator[tuple[str, int]]:
    async def ready() -> tuple[Complaint, ...]:
        return complaints

    async def metrics() -> bytes:
        if text is None:
            raise NotFound("get a counter")
        return text

    server = HealthServer(ready, host="127.0.0.1", port=0, metrics=metrics, **options)
    await server.start()
    try:
        yield server.address
    finally:
        await server.close()


@pytest.fixture
def gone() -> tuple[str, int]:
    """Where a child was: nobody answers there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
    return address


async def test_the_supervisor_is_ready_when_every_child_is() -> None:
    async with child() as one, child() as two:
        assert await Children([one, two], joined).complaints() == []


async def test_the_complaints_of_each_child_are_told() -> None:
    trouble = Complaint("orders", "broker is out of reach")
    async with child() as one, child(trouble) as two:
        complaints = await Children([one, two], joined).complaints()

    assert complaints == [Complaint("process 1, orders", "broker is out of reach")]


async def test_a_child_that_is_not_there_is_not_ready(gone: tuple[str, int]) -> None:
    async with child() as one:
        complaints = await Children([one, gone], joined).complaints()

    assert complaints == [Complaint("process 1", "it does not answer")]


async def test_a_child_that_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # and nobody accepts
        children = Children([listener.getsockname()], joined)
        async with asyncio.timeout(5):
            complaints = await children.complaints()

    assert complaints == [Complaint("process 0", "it does not answer")]


async def test_numbers_are_gathered_from_those_that_answer(gone: tuple[str, int]) -> None:
    async with child(text=b"a") as one, child(text=b"b") as three:
        children = Children([one, gone, three], joined)
        assert await children.metrics() == b"0:a|2:b"


async def test_where_no_child_counts_it_is_said_why() -> None:
    async with child() as one:
        with pytest.raises(NotFound, match="get a counter"):
            await Children([one], joined).metrics()


async def test_the_first_child_that_knows_tells_the_depth(gone: tuple[str, int]) -> None:
    async def depth() -> dict[str, int]:
        return {"orders": 7, "mails": 2}

    async with child(depth=depth) as two:
        known = await Children([gone, two], joined).depth()
    assert known == {"orders": 7, "mails": 2}
    with pytest.raises(Unavailable):
        await Children([gone], joined).depth()


def test_a_port_that_is_taken_is_said_plainly() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="Choose another"),
        answer_probes(
            2, host="127.0.0.1", port=taken.getsockname()[1], depth_threshold=100, gather=joined
        ),
    ):
        pass


def test_a_child_takes_over_the_socket_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(LISTENER_FD, str(listener.fileno()))

        taken = inherited_listener()

        assert taken is not None
        assert taken.getsockname() == listener.getsockname()
        taken.detach()
        assert inherited_listener() is None  # once: our own children have none


def test_a_socket_that_does_not_listen_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        monkeypatch.setenv(LISTENER_FD, str(other.fileno()))

        assert inherited_listener() is None
        assert other.fileno() >= 0
        other.getsockname()  # still open
