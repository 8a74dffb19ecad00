"""A worker: leases a frame, renders it, and says how that went."""

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from deadletter import ConfigError, Conflict, Malformed, Unavailable
from deadletter.client import Lease, LeasedItem, QueueClient
from deadletter.queue_server.model import ItemRetry

from .frame import Frame, frame_of
from .picture import render
from .settings import FRAMES, Settings

WAIT = 20.0  # seconds that a lease is waited for at a time
AWAY = 0.5  # seconds before a server that is away is asked again


class Worker:
    """
    Renders frames until told to stop; the one in hand is finished.

    A frame may be rendered twice when a worker is too slow or the server goes away
    at the wrong moment: the picture is the same, and it is put into its place whole.
    """

    def __init__(self, queue: QueueClient, settings: Settings, say: Callable[[str], None]) -> None:
        self._queue = queue
        self._settings = settings
        self._say = say

    async def run(self, stop: asyncio.Event) -> None:
        """Work."""
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            leasing = asyncio.create_task(self._leased())
            await asyncio.wait({leasing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not leasing.done():
                leasing.cancel()  # who hangs up is lent nothing
                return
            for item in leasing.result().items:
                await self._settled(leasing.result().partition, item)

    async def _leased(self) -> Lease:
        while True:
            try:
                return await self._queue.lease(FRAMES, wait=WAIT)
            except Unavailable:
                await asyncio.sleep(AWAY)

    async def _settled(self, partition: int, item: LeasedItem) -> None:
        try:
            await self._work(partition, item)
        except (Conflict, ConfigError):
            self._say(f"{item.reference}: the lease ran out, somebody else has it")
        except Unavailable:
            self._say(f"{item.reference}: nobody to tell, it will come again")

    async def _work(self, partition: int, item: LeasedItem) -> None:
        try:
            frame = frame_of(item.payload)
            await asyncio.to_thread(self._render, frame)
        except Malformed as error:
            self._say(f"{item.reference or item.id} is dead: {error}")
            await self._queue.retry(FRAMES, partition, [ItemRetry(item.id, dead=True)])
        except Exception as error:  # noqa: BLE001 -- whatever it is, another may try
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
