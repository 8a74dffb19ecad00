"""Transactions run on a thread without an event loop, as long as nothing waits."""

import asyncio

import pytest

from deadletter.office.transactions.operations import run_now


async def test_a_transaction_that_never_waits_runs_at_once() -> None:
    async def inner() -> int:
        return 20

    async def transaction() -> int:
        return await inner() + await inner() + 2

    assert run_now(transaction()) == 42


async def test_errors_of_a_transaction_are_raised() -> None:
    async def transaction() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_now(transaction())


async def test_a_transaction_that_waits_is_ended_and_refused() -> None:
    ended = []

    async def transaction() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="waited"):
        run_now(transaction())
    assert ended
