"""What lease queues promise about items that are dead."""

from datetime import timedelta

from contracts.items_bench import (
    LEASE,
    LIFE,
    ItemsBench,
    a_queue,
    an_item,
    completed,
    given_back,
    leased,
    listed,
    payloads,
    produced,
)
from deadletter.ports import ItemStore
from deadletter.queue_server.model import (
    DeadItem,
    Death,
    ItemRetry,
    NewItem,
    Rejection,
    RejectionReason,
    RetryBatch,
)
from deadletter.testing.fakes import FakeClock

DLQ = "orders-dlq"


class DyingContract(ItemsBench):
    """A dead item is moved once, whole, for a true reason; or deleted and told of."""

    async def test_a_lease_that_ran_out_puts_the_item_back_at_the_tail(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a", b"b")
        (lost,) = (await leased(store, 1)).items
        await self.pass_time(clock, LEASE - 0.001)
        early = await store.sweep()
        await self.pass_time(clock, 0.001)

        swept = await store.sweep()

        assert (early.dead, early.ready) == ((), frozenset())
        assert early.next_at == lost.lease_deadline
        assert (swept.dead, swept.ready) == ((), frozenset({"orders"}))
        stored = await listed(store)
        assert payloads(stored) == [b"b", b"a"]
        assert [(one.is_leased, one.attempts) for one in stored] == [(False, 0), (False, 1)]
        assert await completed(store, [lost.id]) == Rejection(RejectionReason.UNKNOWN, lost.id)

    async def test_a_lease_that_ran_out_is_good_until_somebody_notices(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue())
        await produced(store, b"a")
        (item,) = (await leased(store)).items
        await self.pass_time(clock, LEASE + 1)

        assert await completed(store, [item.id]) is None
        assert (await store.sweep()).next_at is None

    async def test_an_item_whose_last_lease_ran_out_is_moved(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=2)
        await store.produce("orders", [[NewItem(b"\0\xff", "r\0é", "e", "k")]])
        for _ in range(2):
            (item,) = (await leased(store)).items
            await self.pass_time(clock, LEASE)
            swept = await store.sweep()

        assert swept.dead == (DeadItem("orders", item.id, Death.ATTEMPTS, DLQ),)
        assert swept.ready == {DLQ}
        assert await listed(store) == []
        (dead,) = await listed(store, DLQ)
        assert (dead.source_id, dead.attempts) == (item.id, 0)
        assert dead.id != item.id
        assert (dead.is_leased, dead.lease_deadline) == (False, None)
        assert dead.expire_deadline is None
        assert (dead.payload, dead.reference, dead.encoding, dead.kind) == (
            b"\0\xff",
            "r\0é",
            "e",
            "k",
        )

    async def test_an_item_given_back_after_its_last_attempt_is_moved_at_once(
        self, store: ItemStore
    ) -> None:
        await self.with_dead_queue(store, max_attempts=2)
        await produced(store, b"a")
        (first,) = (await leased(store)).items
        assert await given_back(store, [first]) == []
        (last,) = (await leased(store)).items

        dead = await given_back(store, [last])

        assert dead == [DeadItem("orders", last.id, Death.ATTEMPTS, DLQ)]
        assert (await leased(store)).items == ()
        assert [item.source_id for item in await listed(store, DLQ)] == [last.id]

    async def test_a_last_attempt_under_way_is_left_alone(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=1)
        await produced(store, b"a")
        (item,) = (await leased(store)).items
        await self.pass_time(clock, LEASE - 1)

        swept = await store.sweep()

        assert (swept.dead, swept.next_at) == ((), item.lease_deadline)
        assert await completed(store, [item.id]) is None
        assert await listed(store, DLQ) == []

    async def test_an_item_that_expires_while_it_is_leased_is_left_alone(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"done", b"lost")
        await self.pass_time(clock, LIFE - 1)
        done, lost = (await leased(store)).items
        await self.pass_time(clock, 2.0)

        early = await store.sweep()
        assert (early.dead, early.next_at) == ((), lost.lease_deadline)
        assert await completed(store, [done.id]) is None
        await self.pass_time(clock, LEASE)
        late = await store.sweep()

        assert late.dead == (DeadItem("orders", lost.id, Death.EXPIRED, DLQ),)

    async def test_an_item_that_expired_is_not_lent_but_moved(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a")
        (item,) = await listed(store)
        await self.pass_time(clock, LIFE - 1)
        assert (await store.sweep()).next_at == item.expire_deadline
        await self.pass_time(clock, 1.0)

        assert (await leased(store)).items == ()
        swept = await store.sweep()

        assert swept.dead == (DeadItem("orders", item.id, Death.EXPIRED, DLQ),)
        assert swept.next_at is None
        assert payloads(await listed(store, DLQ)) == [b"a"]

    async def test_an_item_given_back_too_late_is_moved(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a")
        await self.pass_time(clock, LIFE - 1)
        lent = (await leased(store)).items
        await self.pass_time(clock, 2.0)

        (dead,) = await given_back(store, lent)

        assert dead.death is Death.EXPIRED

    async def test_what_is_scheduled_lives_from_then_on(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        at = clock.now() + timedelta(seconds=2 * LIFE)
        await produced(store, b"a", at=at)
        await self.pass_time(clock, 2 * LIFE)

        await store.sweep()

        (item,) = (await leased(store)).items
        assert item.expire_deadline == at + timedelta(seconds=LIFE)

    async def test_an_item_expires_while_it_is_scheduled_for_a_retry(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a")
        lent = (await leased(store)).items
        late = clock.now() + timedelta(seconds=2 * LIFE)
        assert await given_back(store, lent, at=late) == []
        assert (await store.sweep()).next_at == lent[0].expire_deadline
        await self.pass_time(clock, LIFE)

        (gone,) = (await store.sweep()).dead

        assert (gone.death, gone.to) == (Death.EXPIRED, DLQ)
        (dead,) = await listed(store, DLQ)
        assert dead.enqueue_at is None

    async def test_a_consumer_may_say_that_an_item_is_dead(self, store: ItemStore) -> None:
        await self.with_dead_queue(store, max_attempts=9)
        await produced(store, b"dead", b"again")
        dead, again = (await leased(store)).items

        answers = await store.retry(
            "orders", [RetryBatch(0, (ItemRetry(dead.id, dead=True), ItemRetry(again.id)))]
        )

        assert answers == [[DeadItem("orders", dead.id, Death.ASKED, DLQ)]]
        assert payloads(await listed(store)) == [b"again"]
        assert payloads(await listed(store, DLQ)) == [b"dead"]

    async def test_without_a_dead_queue_a_dead_item_is_deleted_and_told_of(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(max_attempts=1))
        await produced(store, b"lost", b"back", b"asked", b"late")
        lost, back, asked = (await leased(store, 3)).items

        assert await given_back(store, [back]) == [DeadItem("orders", back.id, Death.ATTEMPTS)]
        assert await given_back(store, [asked], dead=True) == [
            DeadItem("orders", asked.id, Death.ASKED)
        ]
        await self.pass_time(clock, LEASE)
        swept = await store.sweep()
        assert swept.dead == (DeadItem("orders", lost.id, Death.ATTEMPTS),)
        assert swept.ready == frozenset()
        await self.pass_time(clock, LIFE - LEASE)
        (late,) = (await store.sweep()).dead
        assert (late.death, late.to) == (Death.EXPIRED, None)
        assert await listed(store) == []
        assert [one.total for one in await store.stats("orders")] == [0]

    async def test_items_of_a_dead_queue_neither_expire_nor_run_out_of_attempts(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(DLQ, max_attempts=1))
        await store.create_queue(a_queue(dead_queue=DLQ, max_attempts=1))
        await produced(store, b"moved")
        await given_back(store, (await leased(store)).items)
        await produced(store, b"put", queue=DLQ)

        for _ in range(3):
            lent = (await leased(store, queue=DLQ)).items
            assert await given_back(store, lent, queue=DLQ) == []
            await leased(store, queue=DLQ)
            await self.pass_time(clock, LIFE + 1)
            assert (await store.sweep()).dead == ()

        stored = await listed(store, DLQ)
        assert sorted(payloads(stored)) == [b"moved", b"put"]
        assert {item.attempts for item in stored} == {6}
        assert {item.expire_deadline for item in stored} == {None}

    async def test_in_a_dead_queue_to_be_dead_is_to_stay(self, store: ItemStore) -> None:
        await self.with_dead_queue(store)
        await produced(store, b"a", b"b", queue=DLQ)
        lent = (await leased(store, 1, queue=DLQ)).items

        assert await given_back(store, lent, queue=DLQ, dead=True) == []

        assert payloads(await listed(store, DLQ)) == [b"b", b"a"]

    async def test_what_is_in_a_queue_when_it_becomes_a_dead_queue_stays(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(DLQ, max_attempts=1))
        await produced(store, b"waits", queue=DLQ)
        at = clock.now() + timedelta(seconds=LIFE * 2)
        await produced(store, b"leased", queue=DLQ)
        await produced(store, b"scheduled", queue=DLQ, at=at)
        await store.create_queue(a_queue(dead_queue=DLQ))
        await leased(store, 1, queue=DLQ)
        await self.pass_time(clock, LIFE)

        first = await store.sweep()
        await self.pass_time(clock, LIFE)
        second = await store.sweep()
        await self.pass_time(clock, LIFE)
        third = await store.sweep()

        assert first.dead + second.dead + third.dead == ()
        assert third.next_at is None
        assert len((await leased(store, queue=DLQ)).items) == 3

    async def test_what_was_passed_over_as_dead_is_lent_where_nothing_dies(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await store.create_queue(a_queue(DLQ))
        await produced(store, b"old", queue=DLQ)
        await self.pass_time(clock, LIFE / 2)
        await produced(store, b"new", queue=DLQ)
        await self.pass_time(clock, LIFE / 2 + 1)

        first = await leased(store, queue=DLQ)
        await store.create_queue(a_queue(dead_queue=DLQ))

        assert payloads(first.items) == [b"new"]
        assert payloads((await leased(store, queue=DLQ)).items) == [b"old"]

    async def test_the_same_item_of_two_sources_is_two_dead_items(self, store: ItemStore) -> None:
        await self.with_dead_queue(store)
        await store.create_queue(a_queue("returns", dead_queue=DLQ))
        for queue in ("orders", "returns"):
            await produced(store, queue.encode(), queue=queue)
            lent = (await leased(store, queue=queue)).items
            await given_back(store, lent, queue=queue, dead=True)

        dead = await listed(store, DLQ)

        assert payloads(dead) == [b"orders", b"returns"]
        assert len({item.source_id for item in dead}) == 2

    async def test_a_move_that_is_repeated_by_an_import_adds_nothing(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, partitions=2)
        await produced(store, b"a")
        lent = (await leased(store)).items
        await given_back(store, lent, dead=True)
        again = an_item(clock.now(), b"a", source_id=lent[0].id)

        assert await store.import_items(DLQ, 1, [again]) == []
        await leased(store, queue=DLQ)
        assert await store.import_items(DLQ, 0, [again]) == []

        assert [one.total for one in await store.stats(DLQ)] == [1, 0]

    async def test_what_dies_together_goes_to_the_least_loaded_partition(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=1, partitions=2)
        await produced(store, b"x", queue=DLQ)
        await produced(store, b"a", b"b", b"c")
        await leased(store)
        await self.pass_time(clock, LEASE)

        await store.sweep()

        assert payloads(await listed(store, DLQ, partition=1)) == [b"a", b"b", b"c"]

    async def test_tending_is_bounded_and_says_that_there_is_more(
        self, store: ItemStore, clock: FakeClock
    ) -> None:
        await self.with_dead_queue(store, max_attempts=1)
        await produced(store, *(b"%d" % i for i in range(25)))
        await leased(store)
        await self.pass_time(clock, LEASE)

        swept = [await store.sweep(limit=10) for _ in range(3)]

        assert [len(one.dead) for one in swept] == [10, 10, 5]
        assert [one.more for one in swept] == [True, True, False]
        assert len(await listed(store, DLQ)) == 25
