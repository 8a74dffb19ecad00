"""Waiting for something that will come true."""

import asyncio

import pytest

from deadletter.testing.fakes import eventually


async def test_eventually_returns_when_the_condition_is_true() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, done.set)

    await eventually(done.is_set)

    assert done.is_set()


async def test_a_coroutine_function_may_be_the_condition() -> None:
    answers = iter([False, 0, "yes"])

    async def condition() -> object:
        return next(answers)

    await eventually(condition)

    assert next(answers, None) is None


async def test_eventually_names_the_failed_condition() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.01 seconds: .* says 0"):
        await eventually(lambda: 0, within=0.01)
