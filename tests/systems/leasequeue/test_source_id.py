"""Phase 1 of the plan: an item that came from elsewhere says from where, once."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from systems.leasequeue.rig import Queues, imported, payloads


async def test_import_with_source_id(queues: Queues) -> None:
    """R2 ImportWithSourceID."""
    await queues.create("dead")

    (added,) = await queues.bring("abc", b"payload")

    (stored,) = await queues.items("dead")
    assert stored == added
    assert (stored.source_id, stored.payload) == ("abc", b"payload")
    assert stored.id not in {"abc", "elsewhere", ""}


async def test_duplicate_source_id_ignored(queues: Queues) -> None:
    """R2 DuplicateSourceIDIgnored: the second import is no error and adds nothing."""
    await queues.create("dead")
    await queues.bring("abc", b"first")

    assert await queues.bring("abc", b"second") == []

    assert payloads(await queues.items("dead")) == [b"first"]


async def test_a_batch_with_duplicates_brings_each_source_once(queues: Queues) -> None:
    await queues.create("dead")
    await queues.bring("known")
    batch = [imported(source) for source in ("new", "known", "new", "other")]

    added = await queues.client.import_items(queues.name("dead"), batch)

    assert [item.source_id for item in added] == ["new", "other"]
    stored = await queues.items("dead")
    assert [item.source_id for item in stored] == ["known", "new", "other"]


async def test_source_id_preserved_on_list(queues: Queues) -> None:
    """R2 SourceIDPreservedOnList: on every page, leased or not."""
    await queues.create("dead")
    for number in range(5):
        await queues.bring(f"source-{number}")
    await queues.lease("dead")

    name = queues.name("dead")
    first = await queues.client.items(name, limit=3)
    rest = await queues.client.items(name, pivot=first[-1].id, limit=3)

    sources = [item.source_id for item in [*first, *rest[1:]]]
    assert sources == [f"source-{number}" for number in range(5)]
    assert first[0].is_leased


async def test_source_id_is_kept_while_an_item_is_scheduled(queues: Queues) -> None:
    await queues.create("dead")
    at = datetime.now(UTC) + timedelta(hours=1)

    await queues.bring("abc", item={"enqueue_at": at})

    (scheduled,) = await queues.client.items(queues.name("dead"), scheduled=True)
    assert scheduled.source_id == "abc"
    assert await queues.bring("abc") == []


async def test_regular_items_have_no_source_id(queues: Queues) -> None:
    await queues.create("jobs")
    await queues.produce(b"plain")
    await queues.bring(None, queue="jobs")
    await queues.bring(None, queue="jobs")  # and none is nobody's double

    assert [item.source_id for item in await queues.items()] == [None, None, None]


async def test_idempotency(queues: Queues) -> None:
    """R2 Idempotency: two imports of "abc" succeed and leave exactly one item."""
    await queues.create("dead")

    answers = [await queues.bring("abc") for _ in range(2)]

    assert [len(added) for added in answers] == [1, 0]
    assert len(await queues.items("dead")) == 1


async def test_a_source_id_is_known_in_every_partition(queues: Queues) -> None:
    await queues.create("dead", partitions=3)

    added = [await queues.bring("abc", partition=n) for n in (2, 0, 1)]

    assert [len(one) for one in added] == [1, 0, 0]
    stats = await queues.client.stats(queues.name("dead"))
    assert [one.total for one in stats] == [0, 0, 1]


async def test_each_queue_knows_its_own_sources(queues: Queues) -> None:
    await queues.create("dead")
    await queues.create("other")

    await queues.bring("abc", b"one")
    await queues.bring("abc", b"two", queue="other")

    assert payloads(await queues.items("dead")) == [b"one"]
    assert payloads(await queues.items("other")) == [b"two"]


@pytest.mark.parametrize("way", ["completed", "deleted", "cleared"])
async def test_the_source_of_an_item_that_is_gone_is_free(queues: Queues, way: str) -> None:
    """R2.59, R2.63: it is taken while the item is there, leased or not, and no longer."""
    await queues.create("dead")
    (item,) = await queues.bring("abc")
    held = await queues.lease("dead")
    assert await queues.bring("abc") == []

    if way == "completed":
        await queues.complete(held, queue="dead")
    elif way == "deleted":
        await queues.client.delete_items(queues.name("dead"), [item.id])
    else:
        await queues.client.clear(queues.name("dead"), waiting=True, destructive=True)

    assert len(await queues.bring("abc")) == 1
    assert await queues.bring("abc") == []


async def test_a_cleared_dead_queue_is_restored_from_its_list(queues: Queues) -> None:
    """R2.59, R2.63: list, clear, import the same items, and all are there."""
    await queues.create_pair()
    await queues.produce(*[b"%d" % n for n in range(20)], reference="kept")
    await queues.retry(*await queues.leases(), dead=True)
    name = queues.name("dead")
    listed = await queues.items("dead")
    assert len(listed) == 20

    await queues.client.clear(name, waiting=True)
    assert await queues.items("dead") == []
    added = await queues.client.import_items(name, listed)
    again = await queues.client.import_items(name, listed)

    assert (len(added), again) == (20, [])
    restored = await queues.items("dead")
    same = [structs.replace(one, id="") for one in restored]
    assert same == [structs.replace(one, id="") for one in listed]


async def test_a_queue_made_anew_has_had_nothing(queues: Queues) -> None:
    await queues.create("dead")
    await queues.bring("abc")
    await queues.delete("dead")
    await queues.create("dead")

    assert len(await queues.bring("abc")) == 1


async def test_ids_are_new_ones_and_grow(queues: Queues) -> None:
    """An id is the store's: whatever id an import names, the order is of arrival."""
    await queues.create("dead")
    await queues.bring("z")
    await queues.bring("a")

    ids = [item.id for item in await queues.items("dead")]

    assert ids == sorted(ids)
    assert len(set(ids)) == 2


async def test_everything_about_an_item_comes_back_as_it_went_in(queues: Queues) -> None:
    """Both ways over the wire: what is listed can be imported elsewhere, the same."""
    await queues.create("dead")
    await queues.create("copy")
    odd = {"reference": "r é", "encoding": "e", "kind": "k", "attempts": 3}
    await queues.bring("abc", bytes(range(256)), item=odd)
    (original,) = await queues.items("dead")

    await queues.client.import_items(queues.name("copy"), [original])

    (copy,) = await queues.items("copy")
    assert copy == structs.replace(original, id=copy.id)
    assert copy.source_id == "abc"
    # Items are told apart by it: one of another source is another item.
    assert copy != structs.replace(copy, source_id="abd")
