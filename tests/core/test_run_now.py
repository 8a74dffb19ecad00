"""Coroutines that never wait run without an event loop."""

import asyncio

import pytest

from deadletter.core.run_now import run_now


async def _doubled(number: int) -> int:
    return 2 * number


async def _sum() -> int:
    return await _doubled(1) + await _doubled(2)


async def _refused() -> None:
    raise LookupError("no such thing")


def test_the_result_is_returned() -> None:
    assert run_now(_sum()) == 6


def test_errors_are_raised() -> None:
    with pytest.raises(LookupError, match="no such thing"):
        run_now(_refused())


def test_a_coroutine_that_waits_is_ended_and_reported() -> None:
    is_ended = False

    async def waits() -> None:
        nonlocal is_ended
        try:
            await asyncio.sleep(0)
        finally:
            is_ended = True

    with pytest.raises(RuntimeError, match="waited"):
        run_now(waits())

    assert is_ended
