"""Engines on the SQS emulator, each with queues of its own, in time with a clock."""

import struct
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from aiobotocore.session import get_session

from deadletter.brokers.sqs.engine import SqsBroker, SqsEngine, connect
from deadletter.ports import Swept
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import MailboxBench
from servers import Server
from servers.fixtures import serve
from servers.sqs import Sqs

_numbers = count(1)
_run = uuid4().hex[:6]
_loader = get_session().get_component("data_loader")
_TIME = Path(__file__).with_name("sqs_time")


class TimedSqs(Sqs):
    """The emulator, with its clock set by the tests."""

    def prepare(self) -> None:
        self._shown.write_bytes(struct.pack("d", 0.0))

    def environment(self) -> dict[str, str]:
        ours = {"PYTHONPATH": str(_TIME), "SQS_TIME": str(self._shown), "SERVICES": "sqs,s3"}
        return {**super().environment(), **ours}

    def follow(self, clock: FakeClock) -> None:
        """It is as late there as on that clock."""
        with self._shown.open("r+b") as file:
            file.write(struct.pack("d", clock.now().timestamp()))

    @property
    def _shown(self) -> Path:
        return self.directory / "time"


def url_of(server: Server, **more: str) -> str:
    """The engine's URL of a server, with a prefix nobody has used."""
    place = server.url.removeprefix("http://")
    given = {"region": Sqs.region, "prefix": f"t{_run}-{next(_numbers)}-", **more}
    query = "&".join(f"{name}={value}" for name, value in given.items())
    return f"sqs+http://{Sqs.access_key}:{Sqs.secret_key}@{place}?{query}"


async def opened(url: str, clock: Any) -> SqsEngine:
    """
    The engine, on the test's clock.

    What the client library reads about Amazon's services is read once for all of
    them: it takes longer than most tests.
    """
    with patch("deadletter.brokers.sqs.engine.get_session", _session):
        return await connect(url, clock=clock, dice=SeededDice())


def _session() -> Any:
    session = get_session()
    session.register_component("data_loader", _loader)
    return session


def looking(engine: SqsEngine) -> SqsEngine:
    """
    The engine with sweeps that look for lost claims.

    On SQS they are found by whoever receives next. The contract has nobody who
    does, so its sweeps receive, and put back what is not lost.
    """
    broker = engine.broker
    assert isinstance(broker, SqsBroker)
    sweep = broker.sweep

    async def look_and_sweep(*, limit: int = 100, lease: float = 60.0) -> Swept:
        for mailbox in list(broker._sources):
            found = await broker.source(mailbox).receive(limit=50, wait=0, lease=30)
            await broker._settler.put_back(mailbox, [d.receipt for d in found])
        return await sweep(limit=limit, lease=lease)

    broker.sweep = look_and_sweep  # type: ignore[method-assign]
    return engine


class SqsBench(MailboxBench):
    """An engine on an emulator whose clock is the test's."""

    @pytest.fixture(scope="class")
    @classmethod
    def timed_sqs_server(cls, started_servers: list[Server]) -> Iterator[Server]:
        yield from serve(TimedSqs, started_servers)

    @pytest.fixture(autouse=True)
    def _in_time(self, clock: FakeClock, timed_sqs_server: TimedSqs) -> None:
        self.server = timed_sqs_server
        self.server.follow(clock)

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        clock.advance(seconds)
        self.server.follow(clock)

    @pytest.fixture
    def url(self, timed_sqs_server: TimedSqs, tmp_path: Path) -> str:
        return url_of(timed_sqs_server, claim_check=f"file://{tmp_path}")

    @pytest.fixture
    async def engine(self, clock: FakeClock, url: str) -> AsyncIterator[SqsEngine]:
        engine = await opened(url, clock)
        yield engine
        await engine.close()


async def made(engine: SqsEngine, mailbox: str) -> str:
    """The address of a mailbox's queue, for calls past the engine."""
    broker = engine.broker
    assert isinstance(broker, SqsBroker)
    return (await broker._registry.get(mailbox)).url
