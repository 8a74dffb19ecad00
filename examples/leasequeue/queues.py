"""What people do: ask for films, and see to what is dead."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from deadletter import Conflict, Malformed
from deadletter.client import QueueClient
from deadletter.queue_server.model import ItemRetry, LeaseQueue

from .frame import Frame, frame_of, item_of
from .settings import DEAD, FRAMES, Settings

_BATCH: Final = 500  # items in one request
_LOOK: Final = 0.2  # seconds to wait for something dead


def queues(settings: Settings) -> list[LeaseQueue]:
    """The queues of a farm, in the order they have to be made."""
    dead = LeaseQueue(name=DEAD, lease_timeout=300.0, expire_timeout=settings.expire + 300.0)
    frames = LeaseQueue(
        name=FRAMES,
        lease_timeout=settings.lease,
        expire_timeout=max(settings.expire, settings.lease),
        max_attempts=settings.attempts,
        dead_queue=DEAD,
    )
    return [dead, frames]


async def make_queues(queue: QueueClient, settings: Settings) -> None:
    """Make the queues, or bring them up to date."""
    for one in queues(settings):
        try:
            await queue.create_queue(one)
        except Conflict:
            await queue.update_queue(one)


async def submit(queue: QueueClient, frames: Sequence[Frame]) -> None:
    """Ask for frames; they are in the queue for good when this returns."""
    for start in range(0, len(frames), _BATCH):
        batch = [item_of(frame) for frame in frames[start : start + _BATCH]]
        await queue.produce(FRAMES, batch)


async def again(queue: QueueClient, mend: Callable[[bytes], Frame]) -> list[Frame]:
    """
    Ask anew for everything that is dead, mended; what cannot be stays dead.

    First it is asked for, then the dead item is done with: whoever is stopped in
    between has asked twice, and a picture twice is no harm.
    """
    sent: list[Frame] = []
    left: list[tuple[int, str]] = []
    while (lent := await queue.lease(DEAD, wait=_LOOK)).items:
        (item,) = lent.items
        try:
            frame = mend(item.payload)
        except Malformed:
            left.append((lent.partition, item.id))  # ours until all others are done
            continue
        await submit(queue, [frame])
        await queue.complete(DEAD, lent.partition, [item.id])
        sent.append(frame)
    for partition, id_ in left:
        await queue.retry(DEAD, partition, [ItemRetry(id_)])
    return sent


def resized(width: int, height: int) -> Callable[[bytes], Frame]:
    """Mends frames by asking for another size."""
    return lambda payload: structs.replace(frame_of(payload), width=width, height=height)
