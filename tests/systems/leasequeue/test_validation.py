"""Phase 2 of the plan: which queue may be whose dead queue, in both directions."""

import pytest

from deadletter.core.errors import ConfigError, Conflict, NotFound
from systems.leasequeue.rig import Queues, payloads


async def test_non_existent_dlq(queues: Queues) -> None:
    """R2 NonExistentDLQ: refused with advice, and nothing is made."""
    with pytest.raises(ConfigError, match=r"does not exist.*create it first"):
        await queues.create("jobs", dead_queue="nowhere")

    with pytest.raises(NotFound):
        await queues.info("jobs")


async def test_self_reference(queues: Queues) -> None:
    """R2 SelfReference."""
    with pytest.raises(ConfigError, match="cannot reference itself"):
        await queues.create("jobs", dead_queue="jobs")

    with pytest.raises(NotFound):
        await queues.info("jobs")


async def test_dlq_has_dlq(queues: Queues) -> None:
    """R2 DLQHasDLQ: C without, B to C, and A to B is refused."""
    await queues.create("C")
    await queues.create("B", dead_queue="C")

    with pytest.raises(ConfigError, match="cannot have its own dead_queue"):
        await queues.create("A", dead_queue="B")

    with pytest.raises(NotFound):
        await queues.info("A")


async def test_valid_dlq(queues: Queues) -> None:
    """R2 ValidDLQ."""
    await queues.create("dead")

    await queues.create("jobs", dead_queue="dead")

    assert (await queues.info("jobs")).dead_queue == queues.name("dead")


async def test_without_dead_queue_is_valid(queues: Queues) -> None:
    await queues.create("jobs")

    assert (await queues.info("jobs")).dead_queue is None


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("nowhere", "does not exist"),
        ("jobs", "cannot reference itself"),
        ("B", "cannot have its own dead_queue"),
    ],
)
async def test_changes_are_judged_like_creation(queues: Queues, target: str, text: str) -> None:
    await queues.create("C")
    await queues.create("B", dead_queue="C")
    await queues.create("jobs", dead_queue="C", max_attempts=1)
    before = await queues.info()

    with pytest.raises(ConfigError, match=text):
        await queues.update("jobs", dead_queue=target, max_attempts=9)

    assert await queues.info() == before  # nothing of a refused change is applied


async def test_a_queue_in_use_as_dead_queue_cannot_be_given_one(queues: Queues) -> None:
    """A to B exists; B to C would be a chain, seen from the other end."""
    await queues.create("B")
    await queues.create("A", dead_queue="B")
    await queues.create("C")

    with pytest.raises(ConfigError, match=queues.name("B")):
        await queues.update("B", dead_queue="C")

    assert (await queues.info("B")).dead_queue is None


async def test_two_queues_may_share_a_dead_queue(queues: Queues) -> None:
    await queues.create("dead")
    for name in ("one", "two"):
        await queues.create(name, dead_queue="dead")
        await queues.produce(name.encode(), queue=name)
        await queues.retry(await queues.lease(name), queue=name, dead=True)

    assert payloads(await queues.items("dead")) == [b"one", b"two"]


async def test_a_queue_in_use_as_dead_queue_is_not_deleted(queues: Queues) -> None:
    await queues.create_pair()
    await queues.produce(b"kept")
    await queues.die()

    with pytest.raises(Conflict, match=queues.name("jobs")):
        await queues.delete("dead")

    assert payloads(await queues.items("dead")) == [b"kept"]


async def test_a_dead_queue_can_be_deleted_once_unused(queues: Queues) -> None:
    await queues.create_pair()
    await queues.update("jobs", dead_queue=None)

    await queues.delete("dead")

    with pytest.raises(NotFound):
        await queues.info("dead")


async def test_by_force_it_is_deleted_and_nothing_points_to_it(queues: Queues) -> None:
    await queues.create_pair()

    await queues.delete("dead", force=True)

    assert (await queues.info("jobs")).dead_queue is None
    await queues.create("elsewhere")
    await queues.update("jobs", dead_queue="elsewhere")


async def test_produce_to_a_queue_that_is_not_there_fails(queues: Queues) -> None:
    with pytest.raises(NotFound):
        await queues.produce(b"x", queue="nowhere")
