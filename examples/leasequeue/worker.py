"""A worker: leases frames, renders them, and completes or returns them."""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from deadletter import ConfigError, Conflict, Malformed, Unavailable
from deadletter.client import Lease, LeasedItem, QueueClient
from deadletter.queue_server.model import ItemRetry

from .frame import Frame, decode_frame
from .picture import render
from .settings import FRAMES, Settings

WAIT = 20.0  # seconds that one lease request waits
RETRY_AFTER = 0.5  # seconds, if the server is unreachable


class Worker:
    """
    Renders frames until it is stopped; it finishes the current frame first.

    A frame may be rendered twice: if the worker is too slow, or the server ends at the
    wrong moment. Both pictures are the same, and the file is replaced as a whole.
    """

    def __init__(self, queue: QueueClient, settings: Settings, say: Callable[[str], None]) -> None:
        self._queue = queue
        self._settings = settings
        self._say = say

    async def run(self, stop: asyncio.Event) -> None:
        """Render frames until `stop` is set."""
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            leasing = asyncio.create_task(self._leased())
            await asyncio.wait({leasing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not leasing.done():
                leasing.cancel()  # the server leases nothing to a client that has gone
                return
            for item in leasing.result().items:
                await self._settle(leasing.result().partition, item)

    async def _leased(self) -> Lease:
        while True:
            try:
                return await self._queue.lease(FRAMES, wait=WAIT)
            except Unavailable:
                await asyncio.sleep(RETRY_AFTER)

    async def _settle(self, partition: int, item: LeasedItem) -> None:
        try:
            await self._work(partition, item)
        except (Conflict, ConfigError):
            self._say(f"{item.reference}: the lease has expired, another worker has the frame")
        except Unavailable:
            self._say(
                f"{item.reference}: the server is unreachable, the frame will be leased again"
            )

    async def _work(self, partition: int, item: LeasedItem) -> None:
        try:
            frame = decode_frame(item.payload)
            await asyncio.to_thread(self._render, frame)
        except Malformed as error:
            self._say(f"{item.reference or item.id} is dead: {error}")
            await self._queue.retry(FRAMES, partition, [ItemRetry(item.id, dead=True)])
        except Exception as error:  # noqa: BLE001 -- another worker may succeed
            self._say(f"{item.reference}, attempt {item.attempts}: {error}")
            at = datetime.now(UTC) + timedelta(seconds=self._settings.pause)
            await self._queue.retry(FRAMES, partition, [ItemRetry(item.id, at)])
        else:
            self._say(f"{frame.name} rendered, attempt {item.attempts}")
            await self._queue.complete(FRAMES, partition, [item.id])

    def _render(self, frame: Frame) -> None:
        picture = render(frame, pixels=self._settings.pixels)
        folder = self._settings.folder
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f".{frame.name}.{os.getpid()}"
        made.write_bytes(picture)
        made.replace(folder / f"{frame.name}.png")
