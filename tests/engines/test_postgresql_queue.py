"""The PostgreSQL engine keeps what mailboxes promise."""

from collections.abc import AsyncIterator

import pytest

from contracts.queue_damage import DamageContract
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.testing.atomic_replay_contract import AtomicBurialContract, AtomicReplayContract
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_contract import QueueContract
from deadletter.testing.queue_options import ClockContract, OptionsContract
from engines.postgresql_time import ToldTime, told_database, told_time

__all__ = ["told_database"]


class _Told:
    driver = PostgresqlEngine
    at_once = 0.15  # sooner than who only looks
    time: ToldTime

    @pytest.fixture
    async def engine(self, clock: FakeClock, told_database: str) -> AsyncIterator[PostgresqlEngine]:
        async with told_time(told_database, clock) as self.time:
            engine = await open_database(told_database, clock)
            yield engine
            await engine.close()

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        clock.advance(seconds)
        await self.time.tell()


class TestPostgresql(_Told, QueueContract, ClockContract, DamageContract, OptionsContract):
    pass


class TestPostgresqlBurials(_Told, AtomicBurialContract):
    pass


class TestPostgresqlPostman(_Told, AtomicReplayContract):
    pass
