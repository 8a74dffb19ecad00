"""Redis mailboxes and ledger answer like those in memory, whatever is done to them."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from contracts.ledger_machine import LedgerMachine
from contracts.queue_machine import QueueMachine
from deadletter.ports import Engine
from deadletter.stores import memory
from deadletter.testing.fakes import SeededDice
from engines.machines import runs
from engines.redis_rig import fresh, on_clock
from servers import Server

pytestmark = pytest.mark.slow


class RedisBesideMemory(QueueMachine):
    server: str

    def __init__(self) -> None:
        super().__init__()
        self.url = fresh(self.server)

    async def open(self) -> Engine:
        return await on_clock(self.url, self.clock)

    async def open_model(self) -> Engine:
        return await memory.open_engine("memory://", clock=self.clock, dice=SeededDice())


class RedisLedgerBesideMemory(LedgerMachine):
    server: str

    async def open(self) -> Engine:
        return await on_clock(fresh(self.server), self.clock)

    async def open_model(self) -> Engine:
        return await memory.open_engine("memory://", clock=self.clock, dice=SeededDice())


def test_mailboxes_answer_like_those_in_memory(redis_server: Server) -> None:
    RedisBesideMemory.server = redis_server.url
    run_state_machine_as_test(RedisBesideMemory, settings=runs(60, 40))


def test_the_ledger_answers_like_the_one_in_memory(redis_server: Server) -> None:
    RedisLedgerBesideMemory.server = redis_server.url
    run_state_machine_as_test(RedisLedgerBesideMemory, settings=runs(60, 40))
