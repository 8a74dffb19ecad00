"""Requests of people: create the queues, request films, request dead frames again."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from deadletter import Conflict, Malformed
from deadletter.client import QueueClient
from deadletter.queue_server.model import ItemRetry, LeaseQueue

from .frame import Frame, decode_frame, encode_frame
from .settings import DEAD, FRAMES, Settings

_BATCH: Final = 500  # items in one request
_WAIT: Final = 0.2  # seconds to wait for a dead frame


def queue_options(settings: Settings) -> list[LeaseQueue]:
    """Return the queues of a farm; the dead queue first, since it must exist before its user."""
    dead = LeaseQueue(name=DEAD, lease_timeout=300.0, expire_timeout=settings.expire + 300.0)
    frames = LeaseQueue(
        name=FRAMES,
        lease_timeout=settings.lease,
        expire_timeout=max(settings.expire, settings.lease),
        max_attempts=settings.attempts,
        dead_queue=DEAD,
    )
    return [dead, frames]


async def create_queues(queue: QueueClient, settings: Settings) -> None:
    """Create the queues, or update their options; these apply to the items in them."""
    for options in queue_options(settings):
        try:
            await queue.create_queue(options)
        except Conflict:
            await queue.update_queue(options)


async def request_frames(queue: QueueClient, frames: Sequence[Frame]) -> None:
    """Put frames into the queue; they are durable when this returns."""
    for start in range(0, len(frames), _BATCH):
        batch = [encode_frame(frame) for frame in frames[start : start + _BATCH]]
        await queue.produce(FRAMES, batch)


async def request_again(queue: QueueClient, mend: Callable[[bytes], Frame]) -> list[Frame]:
    """
    Request all dead frames again, mended; frames that `mend` rejects stay dead.

    Each frame is requested first and its dead item completed second. If this is stopped
    in between, the frame is rendered twice, which does no harm.
    """
    requested: list[Frame] = []
    rejected: list[tuple[int, str]] = []
    while (lease := await queue.lease(DEAD, wait=_WAIT)).items:
        (item,) = lease.items
        try:
            frame = mend(item.payload)
        except Malformed:
            rejected.append((lease.partition, item.id))  # leased until all others are done
            continue
        await request_frames(queue, [frame])
        await queue.complete(DEAD, lease.partition, [item.id])
        requested.append(frame)
    for partition, id_ in rejected:
        await queue.retry(DEAD, partition, [ItemRetry(id_)])
    return requested


def resize_to(width: int, height: int) -> Callable[[bytes], Frame]:
    """Return a function that decodes a frame and changes its size."""
    return lambda payload: structs.replace(decode_frame(payload), width=width, height=height)
