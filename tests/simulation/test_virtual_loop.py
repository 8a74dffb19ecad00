"""Virtual time: years in no time, the same order for the same seed."""

import asyncio
import gc
import time

import pytest

from deadletter.testing.virtual_time import (
    BEGINNING,
    Deadlock,
    Process,
    SeededDice,
    TimeStandsStill,
    VirtualClock,
    run_virtual,
)


def test_a_year_passes_at_once() -> None:
    began = time.monotonic()

    async def main() -> float:
        await asyncio.sleep(366 * 86_400)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 366 * 86_400
    assert time.monotonic() - began < 5


def test_time_outs_are_virtual_too() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 100


async def racing() -> list[int]:
    order: list[int] = []

    async def run(number: int) -> None:
        await asyncio.sleep(0)
        order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(run(number))
    return order


def test_ready_tasks_run_in_an_order_drawn_from_the_seed() -> None:
    orders = [run_virtual(racing(), seed=seed) for seed in (1, 1, 2)]

    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[2]) == list(range(20))


def test_without_a_seed_the_order_is_that_of_asyncio() -> None:
    assert run_virtual(racing()) == list(range(20))


def test_waiting_for_nobody_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.sleep(3)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"nothing is left to happen at 3\.000 s"):
        run_virtual(main())


def test_a_loop_that_never_sleeps_is_found_out() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 -- that is what is wrong with it
            await asyncio.sleep(0)

    with pytest.raises(TimeStandsStill, match="time stands still"):
        run_virtual(main())


def test_a_killed_process_does_nothing_any_more() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
            done.append("worked")
        finally:
            done.append("tidied up")

    async def main() -> list[str]:
        process = Process("p")
        process.start(work())
        await asyncio.sleep(5)
        process.kill()
        del process
        gc.collect()
        await asyncio.sleep(100)
        return list(done)

    assert run_virtual(main()) == []


def test_a_killed_process_takes_its_children_along() -> None:
    done: list[str] = []

    async def child() -> None:
        await asyncio.sleep(1)
        done.append("child")

    async def parent() -> None:
        await asyncio.gather(asyncio.create_task(child()), child())

    async def main() -> None:
        process = Process("p")
        process.start(parent())
        await asyncio.sleep(0.5)
        process.kill()
        await asyncio.sleep(10)
        assert done == []

    run_virtual(main())


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def work(seen: list[float]) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(asyncio.get_running_loop().time())

    async def main() -> list[float]:
        seen: list[float] = []
        process = Process("p")
        process.start(work(seen))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(10)
        return seen

    assert run_virtual(main()) == [1, 11.5, 12.5]


def test_a_clock_that_is_set_still_counts_seconds() -> None:
    async def main() -> None:
        clock = VirtualClock()
        await asyncio.sleep(10)
        clock.step(-3600)

        assert (clock.now() - BEGINNING).total_seconds() == -3590
        assert clock.monotonic() == 10

    run_virtual(main())


def test_dice_of_the_same_seed_fall_alike() -> None:
    async def main() -> list[tuple[float, str]]:
        dice = SeededDice("seed", VirtualClock())
        return [(dice.draw(), dice.new_id()) for _ in range(10)]

    first, second = run_virtual(main()), run_virtual(main())

    assert first == second
    assert len(set(first)) == 10
