"""One that is refused does not hold up the others."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import Refused, Unavailable
from deadletter.runtime.outcomes import bisect_rejected


@given(flags=st.lists(st.booleans(), max_size=40))
def test_each_has_its_own_answer_in_the_order_asked(flags: list[bool]) -> None:
    done: list[int] = []

    async def call(batch: Sequence[int]) -> Sequence[str]:
        if any(not flags[number] for number in batch):
            raise Refused("not this one")
        done.extend(batch)
        return [f"kept {number}" for number in batch]

    answers = asyncio.run(bisect_rejected(call, range(len(flags))))

    for number, (is_fine, answer) in enumerate(zip(flags, answers, strict=True)):
        if is_fine:
            assert answer == f"kept {number}"
        else:
            assert isinstance(answer, Refused)
    assert done == [number for number, is_fine in enumerate(flags) if is_fine]


async def test_one_bad_one_among_many_costs_few_calls() -> None:
    calls = 0

    async def call(batch: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        if 77 in batch:
            raise Refused("not this one")
        return batch

    await bisect_rejected(call, range(128))

    assert calls == 1 + 2 * 7


async def test_an_outage_is_no_refusal() -> None:
    async def call(batch: Sequence[int]) -> Sequence[int]:
        raise Unavailable("nobody answers")

    with pytest.raises(Unavailable):
        await bisect_rejected(call, [1, 2])
