"""Running one delivery while nothing else runs."""

import asyncio

from deadletter.runtime.solitude import Solitude


async def test_alone_waits_until_nothing_is_in_flight() -> None:
    solitude, order = Solitude(), []
    solitude.enter(2)

    async def go_alone() -> None:
        async with solitude.alone("a", patience=5) as alone:
            order.append(("alone", alone))

    going = asyncio.create_task(go_alone())
    await asyncio.sleep(0)
    assert solitude.wanted
    solitude.leave()
    await asyncio.sleep(0)
    order.append(("one left", True))
    solitude.leave()
    await going

    assert order == [("one left", True), ("alone", True)]
    assert not solitude.wanted


async def test_patience_ends_when_others_take_too_long() -> None:
    solitude = Solitude()
    solitude.enter()

    async with solitude.alone("a", patience=0.01) as alone:
        assert not alone

    assert not solitude.wanted


async def test_only_one_can_be_alone() -> None:
    solitude = Solitude()

    async with (
        solitude.alone("a", patience=1) as first,
        solitude.alone("b", patience=1) as second,
    ):
        assert (first, second) == (True, False)
        assert solitude.wanted


async def test_the_others_wait_until_it_is_over() -> None:
    solitude, seen = Solitude(), []

    async def wait() -> None:
        await solitude.until_free(5)
        seen.append(solitude.wanted)

    async with solitude.alone("a", patience=1):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        assert seen == []
    await waiting

    assert seen == [False]


async def test_waiting_for_freedom_has_an_end() -> None:
    solitude = Solitude()

    async with solitude.alone("a", patience=1):
        await solitude.until_free(0.01)

        assert solitude.wanted
