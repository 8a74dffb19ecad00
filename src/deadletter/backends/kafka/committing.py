"""
Commits in groups: one at a time, and whoever asks meanwhile goes with the next.

A commit says of each partition how far it has been worked and, in its note, what
was done beyond and what is in somebody's hands. The broker takes it only from the
partition's present owner, so an answered commit is also the proof that we are it.

A consumer lets in one thread at a time, so it is the polling one that commits.
"""

import asyncio
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition

from deadletter.core.errors import DeadLetterError, Unavailable

from .errors import MOVED_ON, kafka_error, translated
from .rows import Lane

_PATIENCE: Final = 15.0  # seconds until the broker is taken to be away
_PAUSE: Final = 0.05  # seconds until a group that is on the move is asked again
_FAREWELL: Final = 3.0  # seconds for the last word on a partition

Asked: TypeAlias = "asyncio.Future[None]"


class Committing:
    """Tells the broker how lanes stand."""

    def __init__(self, consumer: Consumer, lock: threading.Lock) -> None:
        self.asked = threading.Event()  # wakes the polling thread
        self._consumer = consumer
        self._lock = lock  # of the lanes
        self._loop = asyncio.get_running_loop()
        self._lanes: set[Lane] = set()
        self._futures: list[Asked] = []
        self._not_before = 0.0

    async def commit(self, lanes: Collection[Lane]) -> None:
        """
        Have the broker know how these stand; returns when it does.

        Lanes that are no longer ours are left out: look at `gone` afterwards.
        """
        if not lanes:
            return
        future: Asked = self._loop.create_future()
        with self._lock:
            self._lanes.update(lanes)
            self._futures.append(future)
        self.asked.set()
        try:
            async with asyncio.timeout(_PATIENCE):
                await future
        except TimeoutError as error:
            raise Unavailable(
                f"the broker did not answer a commit within {_PATIENCE:.0f} seconds"
            ) from error

    # On the polling thread.

    def serve(self) -> None:
        """Make the commits that were asked for."""
        if not self._futures or time.monotonic() < self._not_before:
            return
        with self._lock:
            lanes, self._lanes = self._lanes, set()
            futures, self._futures = self._futures, []
        try:
            self._write(lanes)
        except _MovedOn:
            self._not_before = time.monotonic() + _PAUSE
            with self._lock:
                self._lanes |= lanes
                self._futures += futures
        except DeadLetterError as error:
            self._tell(futures, error)
        else:
            self._tell(futures, None)

    def farewell(self, lanes: Collection[Lane]) -> None:
        """The last word on lanes: what is in somebody's hands is given up."""
        deadline = time.monotonic() + _FAREWELL
        while True:
            try:
                return self._write(lanes, left=True)
            except _MovedOn as error:
                if time.monotonic() > deadline:
                    raise Unavailable("the group has moved on") from error
                time.sleep(_PAUSE)

    def end(self) -> None:
        """Nothing is committed any more."""
        with self._lock:
            futures, self._futures = self._futures, []
        self._tell(futures, Unavailable("this mailbox is no longer worked here"))

    def _write(self, lanes: Iterable[Lane], *, left: bool = False) -> None:
        with self._lock:
            offsets = [
                TopicPartition(
                    *lane.place, lane.progress.base, lane.progress.note(left=left)
                )
                for lane in lanes
                if not lane.gone
            ]
        if not offsets:
            return
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise _of(error) from error
        for answer in answers or ():
            if answer.error is not None:
                raise _of(KafkaException(answer.error))

    def _tell(self, futures: list[Asked], error: DeadLetterError | None) -> None:
        def tell() -> None:
            for future in futures:
                if future.done():
                    continue
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

        if futures:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                self._loop.call_soon_threadsafe(tell)


class _MovedOn(Exception):
    """The group is on the move: ask again, or find the lanes gone."""


def _of(error: KafkaException) -> Exception:
    inner = kafka_error(error)
    if inner is not None and inner.code() in MOVED_ON:
        return _MovedOn()
    return translated(error, "committing")
