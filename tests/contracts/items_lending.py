"""What lease queues promise about what goes in, who gets it, and how it is given up."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.items_bench import (
    LEASE,
    LIFE,
    ItemsBench,
    a_queue,
    completed,
    given_back,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.core.errors import NotFound
from deadletter.ports import ItemStore
from deadletter.queue_server.model import (
    Completion,
    ItemRetry,
    NewItem,
    Rejection,
    RejectionReason,
    RetryBatch,
)
from deadletter.testing.fakes import FakeClock

_texts = st.text(max_size=20)
_new_items = st.builds(
    NewItem, st.binary(max_size=200), reference=_texts, encoding=_texts, kind=_texts
)


class LendingContract(ItemsBench):
    """Items in, leases out: whole, in order, each to one client."""

    @given(batch=st.lists(_new_items, min_size=1, max_size=6))
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # emptied by each example itself
            HealthCheck.differing_executors,  # that is what a contract is for
        ],
    )
    async def test_items_are_lent_as_they_were_produced(
        self, store: ItemStore, batch: list[NewItem]
    ) -> None:
        if not await store.queues(limit=1):
            await store.create_queue(a_queue())
        await store.produce("orders", [batch])

        lent = await leased(store)

        assert [
            NewItem(one.payload, one.reference, one.encoding, one.kind) for one in lent.items
        ] == batch
        assert await completed(store, [item.id for item in lent.items]) is None

    async def test_an_item_says_how_it_stands(self, store: ItemStore, clock: FakeClock) -> None:
        await store.create_queue(a_queue(max_attempts=3))
        start = clock.now()
        await produced(store, b"a")
        await self.pass_time(clock, 2.0)

        (item,) = (await leased(store)).items

        (stored,) = await listed(store)
        assert stored == item
        assert (item.attempts, item.max_attempts, item.source_id) == (1, 3, None)
        assert item.is_leased
        assert item.lease_deadline == start + timedelta(seconds=2 + LEASE)
        assert item.expire_deadline == start + timedelta(seconds=LIFE)
        assert (item.created_at, item.updated_at) == (start, clock.now())
        assert item.enqueue_at is None

    async def test_large_and_small_payloads_are_lent_whole(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        sizes = [10, 1_000_000, 0, 16_384, 16_385, 10]
        sent = [bytes([i]) * size for i, size in enumerate(sizes)]
        await produced(store, *sent)

        assert payloads((await leased(store)).items) == sent

    async def test_items_are_lent_in_order_and_once(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        sent = [b"%d" % i for i in range(250)]
        await store.produce("orders", [[NewItem(payload)] for payload in sent])

        first, second, third = await store.lease("orders", [100, 200, 5])

        lent = [payloads(one.items) for one in (first, second, third)]
        assert [payload for one in lent for payload in one] == sent
        assert [len(one) for one in lent] == [100, 145, 5]
        assert (await leased(store)).items == ()

    @pytest.mark.parametrize(
        ("wants", "available", "shares"),
        [([20, 6, 1], 23, [16, 6, 1]), ([10] * 5, 10, [2] * 5), ([3, 3], 1, [1, 0])],
    )
    async def test_clients_share_what_there_is(
        self, store: ItemStore, wants: list[int], available: int, shares: list[int]
    ) -> None:
        await store.create_queue(a_queue())
        sent = [b"%d" % i for i in range(available)]
        await produced(store, *sent)

        found = await store.lease("orders", wants)

        assert [len(one.items) for one in found] == shares
        assert [item.payload for one in found for item in one.items] == sent

    async def test_ids_are_distinct_and_sort_by_order(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        await produced(store, *[b"x"] * 20)
        await produced(store, *[b"x"] * 20)

        ids = [item.id for item in await listed(store)]

        assert sorted(set(ids)) == ids
        assert len(ids) == 40

    async def test_the_attempt_is_counted_when_it_is_lent(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a")

        for attempt in (1, 2, 3):
            (item,) = (await leased(store)).items
            assert item.attempts == attempt
            await given_back(store, [item])
        assert [item.attempts for item in await listed(store)] == [3]

    async def test_completed_items_are_gone(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a", b"b", b"c")
        lent = await leased(store, 2)

        assert await completed(store, [item.id for item in lent.items]) is None

        assert payloads(await listed(store)) == [b"c"]

    async def test_a_request_with_an_unknown_id_is_not_applied_at_all(
        self, store: ItemStore
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a", b"b")
        one, two = [item.id for item in (await leased(store)).items]
        await completed(store, [two])

        for odd in (two, "", "nonsense", "f" * 16, "0" * 16, "é" * 16):
            assert await completed(store, [one, odd]) == Rejection(RejectionReason.UNKNOWN, odd)
            again = RetryBatch(0, (ItemRetry(one), ItemRetry(odd)))
            assert await store.retry("orders", [again]) == [Rejection(RejectionReason.UNKNOWN, odd)]
        assert payloads(await listed(store)) == [b"a"]
        assert await completed(store, [one]) is None

    async def test_a_request_with_an_id_that_is_not_leased_is_not_applied_at_all(
        self, store: ItemStore
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a", b"b")
        (lent,) = (await leased(store, 1)).items
        free = (await listed(store))[1].id

        denied = await completed(store, [lent.id, free])
        again = RetryBatch(0, (ItemRetry(lent.id), ItemRetry(free)))

        assert denied == Rejection(RejectionReason.NOT_LEASED, free)
        assert await store.retry("orders", [again]) == [Rejection(RejectionReason.NOT_LEASED, free)]
        assert [item.is_leased for item in await listed(store)] == [True, False]

    async def test_requests_of_one_call_are_judged_one_by_one(self, store: ItemStore) -> None:
        await store.create_queue(a_queue(partitions=2))
        await produced(store, b"a", b"b", b"c")
        a, b, c = [item.id for item in (await leased(store)).items]

        answers = await store.complete(
            "orders",
            [
                Completion(0, (a,)),
                Completion(0, (b, a)),
                Completion(1, (b,)),
                Completion(2, (b,)),
                Completion(-1, (b,)),
                Completion(0, (c, c)),
            ],
        )

        assert answers == [
            None,
            Rejection(RejectionReason.UNKNOWN, a),
            Rejection(RejectionReason.UNKNOWN, b),
            Rejection(RejectionReason.PARTITION),
            Rejection(RejectionReason.PARTITION),
            Rejection(RejectionReason.REPEATED, c),
        ]
        assert payloads(await listed(store)) == [b"b", b"c"]

    async def test_retries_of_one_call_are_judged_one_by_one(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a", b"b", b"c")
        a, b, c = [item.id for item in (await leased(store)).items]

        answers = await store.retry(
            "orders",
            [
                RetryBatch(0, (ItemRetry(b),)),
                RetryBatch(0, (ItemRetry(a), ItemRetry(b))),
                RetryBatch(1, (ItemRetry(a),)),
                RetryBatch(0, (ItemRetry(c), ItemRetry(c))),
            ],
        )

        assert answers == [
            [],
            Rejection(RejectionReason.UNKNOWN, b),
            Rejection(RejectionReason.PARTITION),
            Rejection(RejectionReason.REPEATED, c),
        ]
        assert payloads(await listed(store)) == [b"a", b"c", b"b"]
        assert payloads((await leased(store)).items) == [b"b"]

    async def test_what_is_given_back_goes_to_the_tail_under_another_id(
        self, store: ItemStore
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a", b"b")
        (item,) = (await leased(store, 1)).items

        assert await given_back(store, [item]) == []

        stored = await listed(store)
        assert payloads(stored) == [b"b", b"a"]
        assert item.id not in {one.id for one in stored}
        assert await completed(store, [item.id]) == Rejection(RejectionReason.UNKNOWN, item.id)

    async def test_of_many_clients_each_gets_its_own(self, store: ItemStore) -> None:
        await store.create_queue(a_queue(partitions=3))
        for start in range(0, 300, 10):
            await produced(store, *(b"%d" % i for i in range(start, start + 10)))

        answers = await asyncio.gather(*(leased(store, 10) for _ in range(35)))

        lent = [payload for one in answers for payload in payloads(one.items)]
        assert sorted(lent, key=int) == [b"%d" % i for i in range(300)]

    async def test_nothing_asked_nothing_done(self, store: ItemStore) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a")

        await store.produce("orders", [])
        await store.produce("orders", [[]])
        assert await store.lease("orders", []) == []
        assert [one.items for one in await store.lease("orders", [0])] == [()]
        assert await store.complete("orders", []) == []
        assert await store.retry("orders", []) == []
        assert await store.complete("orders", [Completion(0, ())]) == [None]
        assert await store.retry("orders", [RetryBatch(0, ())]) == [[]]
        assert payloads(await listed(store)) == [b"a"]

    async def test_a_queue_that_is_not_there_is_not_found(self, store: ItemStore) -> None:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.produce("nowhere", [[NewItem(b"x")]]),
            lambda: store.lease("nowhere", [1]),
            lambda: store.complete("nowhere", [Completion(0, ("f" * 16,))]),
            lambda: store.retry("nowhere", [RetryBatch(0, (ItemRetry("f" * 16),))]),
            lambda: store.stats("nowhere"),
            lambda: store.items("nowhere", 0, limit=1),
            lambda: store.import_items("nowhere", 0, []),
            lambda: store.delete_items("nowhere", 0, []),
            lambda: store.clear("nowhere", waiting=True, scheduled=True, destructive=True),
            lambda: store.queue("nowhere"),
            lambda: store.delete_queue("nowhere"),
            lambda: store.update_queue(a_queue("nowhere")),
        ]
        for call in calls:
            with pytest.raises(NotFound, match="nowhere"):
                await call()
