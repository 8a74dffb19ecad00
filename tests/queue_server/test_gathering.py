"""What several clients ask at once is carried out together."""

import asyncio

import pytest

from deadletter.core.errors import ConfigError, Conflict, NotFound, Refused, Unavailable
from deadletter.queue_server import service as desk
from deadletter.queue_server.model import Completion, NewItem
from deadletter.queue_server.waiting_requests import RequestBatcher, TryAgain
from queue_server.lending_rig import in_virtual_time, lending


@in_virtual_time
async def test_requests_that_come_during_a_transaction_go_into_the_next_one() -> None:
    async with lending() as rig:
        rig.store.takes = 1.0
        first = asyncio.create_task(rig.produce(b"first"))
        await asyncio.sleep(0.5)
        await asyncio.gather(*(rig.produce(b"%d" % n) for n in range(49)))

        assert first.done()
        assert rig.store.times("produce") == [1, 49]
        assert rig.clock.monotonic() < 2.1


@in_virtual_time
async def test_each_client_has_its_own_answer() -> None:
    async with lending() as rig:
        await rig.produce(b"1", b"2")
        one, two = (await rig.lease(want=2)).items
        completions = [
            Completion(0, (one.id,)),
            Completion(0, ("nobody",)),
            Completion(7, (two.id,)),
            Completion(0, (two.id,)),
        ]
        rig.store.takes = 1.0
        first = asyncio.create_task(rig.lending.complete("jobs", completions[0]))
        await asyncio.sleep(0.5)

        answers = await asyncio.gather(
            *(rig.lending.complete("jobs", one) for one in completions[1:]), return_exceptions=True
        )

        await first
        assert [type(answer) for answer in answers] == [ConfigError, ConfigError, type(None)]
        assert rig.store.times("complete") == [1, 3]
        with pytest.raises(ConfigError, match="no item"):
            await rig.lending.complete("jobs", completions[3])


@in_virtual_time
async def test_items_that_are_not_leased_cannot_be_completed() -> None:
    async with lending() as rig:
        await rig.produce(b"1")
        (item,) = await rig.store.items("jobs", 0, limit=10)

        with pytest.raises(Conflict, match="not leased"):
            await rig.lending.complete("jobs", Completion(0, (item.id,)))


@in_virtual_time
async def test_a_storage_error_is_an_error_to_everybody_it_concerns() -> None:
    async with lending() as rig:
        rig.store.takes, rig.store.fails = 1.0, Unavailable("gone fishing")

        answers = await asyncio.gather(
            *(rig.produce(b"1") for _ in range(3)), return_exceptions=True
        )

        assert [type(answer) for answer in answers] == [Unavailable] * 3
        # What became of it is not known, so nothing was tried a second time.
        assert rig.store.times("produce") == [3]


@in_virtual_time
async def test_one_bad_request_does_not_fail_its_neighbours() -> None:
    done: list[str] = []

    async def carry_out(requests: list[str]) -> list[str]:
        await asyncio.sleep(1.0)
        if "bad" in requests:
            raise Refused("not that one")
        done.extend(requests)
        return requests

    gathering: RequestBatcher[str, str] = RequestBatcher(carry_out, most=100, limit=100)
    answers = await asyncio.gather(
        *(gathering.ask(one, size=1, within=60.0) for one in ("a", "b", "bad", "c")),
        return_exceptions=True,
    )

    assert [str(answer) for answer in answers] == ["a", "b", "not that one", "c"]
    assert done == ["a", "b", "c"]


@in_virtual_time
async def test_a_queue_that_is_not_there_is_not_there_for_anybody() -> None:
    async with lending() as rig:
        rig.store.takes = 1.0
        asked = [rig.lending.produce("nowhere", [NewItem(b"1")]) for _ in range(5)]

        answers = await asyncio.gather(*asked, return_exceptions=True)

        assert [type(answer) for answer in answers] == [NotFound] * 5
        assert rig.store.times("produce") == [5]


@in_virtual_time
async def test_a_request_whose_time_is_over_before_its_turn_is_not_applied() -> None:
    async with lending() as rig:
        rig.store.takes = 5.0
        first = asyncio.create_task(rig.produce(b"first"))
        await asyncio.sleep(1.0)

        with pytest.raises(TryAgain, match="request timeout"):
            await rig.lending.produce("jobs", [NewItem(b"second")], within=1.0)

        await first
        rig.store.takes = 0.0
        assert len(await rig.store.items("jobs", 0, limit=10)) == 1


@in_virtual_time
async def test_one_under_way_is_waited_for_however_long_it_takes() -> None:
    async with lending() as rig:
        rig.store.takes = 5.0

        await rig.lending.produce("jobs", [NewItem(b"slow")], within=1.0)

        assert rig.clock.monotonic() >= 5.0


@in_virtual_time
async def test_too_much_at_once_is_an_overload() -> None:
    async with lending() as rig:
        rig.store.takes = 5.0
        large = bytes(desk.PRODUCED_WAITING // 10 - desk.OVERHEAD)
        first = asyncio.create_task(rig.produce(large))
        await asyncio.sleep(1.0)

        answers = await asyncio.gather(
            *(rig.produce(large) for _ in range(15)), return_exceptions=True
        )

        refused = [one for one in answers if isinstance(one, TryAgain)]
        assert "overloaded" in str(refused[0])
        # One was under way, ten fitted into the waiting room, the rest was sent away.
        await first
        assert (len(refused), answers.count(None)) == (5, 10)
        assert (await rig.store.stats("jobs"))[0].total == 11


@in_virtual_time
async def test_transactions_are_bounded() -> None:
    async with lending() as rig:
        rig.store.takes = 1.0
        half = bytes(desk.PRODUCED_AT_ONCE // 2)
        asked = [asyncio.create_task(rig.produce(half)) for _ in range(4)]
        await asyncio.gather(*asked)

        assert rig.store.times("produce") == [1, 1, 1, 1]


@in_virtual_time
async def test_requests_of_disconnected_clients_are_skipped() -> None:
    async with lending() as rig:
        rig.store.takes = 5.0
        first = asyncio.create_task(rig.produce(b"1"))
        await asyncio.sleep(1.0)
        second = asyncio.create_task(rig.produce(b"2"))
        await asyncio.sleep(1.0)
        second.cancel()

        await first
        await rig.produce(b"3")

        rig.store.takes = 0.0
        leased = await rig.lease(want=10)
        assert [item.payload for item in leased.items] == [b"1", b"3"]


@in_virtual_time
async def test_names_that_clients_make_up_are_forgotten() -> None:
    async with lending() as rig:
        for number in range(5_000):
            with pytest.raises(NotFound):
                await rig.lending.produce(f"made-up-{number}", [NewItem(b"1")])

        assert len(rig.lending._queues) <= 1024
