"""
Assigned partitions: their progress, their records, and the commits of both.

Kafka stores one offset per partition: everything below it is done. The note beside the
offset stores what is done beyond it, and what is claimed. A note always fits, since
records beyond the window are not claimed.
"""

import asyncio
import threading
import time
import zlib
from base64 import b85decode, b85encode
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from msgspec import Struct, structs

from deadletter.core.errors import DeadLetterError, Unavailable
from deadletter.core.message import Delivery, Message
from deadletter.kit import micros, when

from .errors import REBALANCING, kafka_error, translated
from .records import Raw, Trail

WINDOW: Final = 8192  # offsets; the longest note then has below 3000 characters
_MARK: Final = "dlq1:"
_MOST: Final = 2**62  # limit of a count in a note


class _Note(Struct, array_like=True):
    done: bytes
    claimed: bytes
    left: bool
    tally: dict[str, int]


_read = msgspec.msgpack.Decoder(_Note).decode
_write = msgspec.msgpack.Encoder().encode


class Progress:
    """
    Done and claimed offsets of a partition.

    `left` says that the owner released its claims when it left; otherwise it died.
    """

    __slots__ = ("_claimed", "_done", "base", "left", "tally")

    def __init__(
        self,
        base: int,
        *,
        done: int = 0,
        claimed: int = 0,
        left: bool = False,
        tally: dict[str, int] | None = None,
    ) -> None:
        self.base = base  # all below is done
        self.left = left
        self.tally = tally or {}
        self._done = done  # a bit per offset from the base on
        self._claimed = claimed
        self._advance()

    def claim(self, offset: int) -> None:
        """Claim an offset."""
        if not self.is_done(offset):
            self._claimed |= 1 << offset - self.base

    def unclaim(self, offset: int) -> None:
        """Undo a claim."""
        if self.is_claimed(offset):
            self._claimed ^= 1 << offset - self.base

    def finish(self, offset: int, fate: str | None = None) -> None:
        """Mark an offset as done, and count its fate."""
        if self.is_done(offset):
            return
        if fate is not None:
            self.tally[fate] = self.tally.get(fate, 0) + 1
        bit = 1 << offset - self.base
        self._done |= bit
        self._claimed &= ~bit
        self._advance()

    def skip(self, start: int, end: int) -> None:
        """Mark offsets without records as done, from `start` up to `end`."""
        start = max(start, self.base)
        if start < end:
            self._done |= (1 << end - self.base) - (1 << start - self.base)
            self._claimed &= ~self._done
            self._advance()

    def is_done(self, offset: int) -> bool:
        """Tell whether an offset is done."""
        return offset < self.base or bool(self._done >> offset - self.base & 1)

    def is_fresh(self, offset: int) -> bool:
        """Tell whether nothing is known of an offset and all after it."""
        return offset - self.base >= max(self._done.bit_length(), self._claimed.bit_length())

    def is_claimed(self, offset: int) -> bool:
        """Tell whether an offset is claimed."""
        return offset >= self.base and bool(self._claimed >> offset - self.base & 1)

    @property
    def claims(self) -> int:
        """Number of claimed offsets."""
        return self._claimed.bit_count()

    def open_until(self, end: int) -> int:
        """Return the number of open offsets before `end`."""
        if end <= self.base:
            return 0
        width = end - self.base
        return width - (self._done & (1 << width) - 1).bit_count()

    def note(self, *, left: bool = False) -> str:
        """Encode the note beside the offset; `left` releases the claims."""
        note = _Note(_bytes(self._done), _bytes(self._claimed), left, self.tally)
        return _MARK + b85encode(zlib.compress(_write(note), 1)).decode()

    def _advance(self) -> None:
        ended = (~self._done & (self._done + 1)).bit_length() - 1  # ones at the end
        if ended:
            self.base += ended
            self._done >>= ended
            self._claimed >>= ended


def read_note(base: int, note: str | None) -> Progress:
    """Decode a note; a note of others gives the offset alone."""
    if not note or not note.startswith(_MARK) or len(note) > 10_000:
        return Progress(base)
    try:
        packed = zlib.decompressobj().decompress(b85decode(note.removeprefix(_MARK)), 100_000)
        told = _read(packed)
    except (ValueError, zlib.error, msgspec.DecodeError):
        return Progress(base)
    return Progress(
        base,
        done=_bits(told.done),
        claimed=_bits(told.claimed) & ~_bits(told.done),
        left=told.left,
        tally={fate: n for fate, n in told.tally.items() if 0 < n < _MOST},
    )


def _bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _bits(told: bytes) -> int:
    return int.from_bytes(told[: WINDOW // 8], "little")


Place: TypeAlias = tuple[str, int]  # topic and partition


class Entry:
    """A record of the backlog."""

    __slots__ = (
        *("ahead", "counted", "due", "ended", "first_at", "assignment", "lease", "leased"),
        *("message", "offset", "raw", "seq", "size", "token", "trail"),
    )

    def __init__(
        self,
        assignment: "Assignment",
        offset: int,
        raw: Raw,
        message: Message,
        trail: Trail,
        *,
        due: int,
        seq: int,
    ) -> None:
        self.assignment = assignment
        self.offset = offset
        self.raw = raw
        self.message = message
        self.trail = trail
        self.due = due
        self.seq = seq
        self.first_at = trail.first_at
        self.size = len(raw.value or b"") + len(trail.history) + 500
        self.token: int | None = None  # of the claim; None: unclaimed
        self.leased = 0  # end of the lease
        self.lease = 0  # its requested length, in microseconds
        self.counted = False  # whether this claim is an attempt
        self.ended = False  # settled, not committed yet
        self.ahead = False  # counted for the next receive

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset of its first delivery."""
        topic, partition = self.assignment.place
        return self.trail.origin or (topic, partition, self.offset)

    @property
    def attempts(self) -> int:
        """Number of attempts, with this one."""
        return self.trail.attempts + self.counted

    def expired(self, now: int) -> bool:
        """Tell whether the message has expired."""
        expires_at = self.message.expires_at
        return expires_at is not None and micros(expires_at) <= now

    def delivery(self, mailbox: str, now: int) -> Delivery:
        """Return the delivery of a claim."""
        topic, partition, offset = self.origin
        if self.first_at is None and self.counted:
            self.first_at = now
        first_at = self.first_at
        return Delivery(
            message=self.message,
            mailbox=mailbox,
            attempt=self.attempts,
            spared=self.trail.spared,
            suspect=self.trail.suspect,
            partition=str(partition),
            position=f"{topic}/{partition}/{offset}",
            first_received_at=None if first_at is None else when(first_at),
            history=self.trail.history,
            receipt=self.token,
            unsigned=self.trail.unsigned,
        )

    def released(self, due: int, wait: int = 0, *, history: str | None, charged: bool) -> Trail:
        """Return the trail of a released entry."""
        # Its handler ran and its worker survived: the message is proven. A message
        # that did not run (uncharged, without a story) is not.
        proven = charged or history is not None
        return structs.replace(
            self.trail,
            attempts=self.attempts,
            spared=self.trail.spared + (not charged),
            suspect=self.trail.suspect and not proven,
            first_at=self.first_at,
            due=due,
            wait=wait,
            origin=self.origin,
            history=self.trail.history if history is None else history,
        )

    def waiting(self) -> Trail:
        """Return the trail of an entry that goes on waiting."""
        return structs.replace(self.trail, due=self.due, origin=self.origin)

    def lost(self, due: int) -> Trail:
        """Return the trail of an entry whose worker died."""
        # Lost among others, another message may be the cause: not charged. Lost
        # alone, as suspects are, it is charged.
        trail = self.released(due, history=None, charged=self.trail.suspect)
        return structs.replace(trail, attempts=self.trail.attempts + 1, suspect=True)

    def left(self, due: int) -> Trail:
        """Return the trail of an unfinished entry whose partition was revoked."""
        trail = self.released(due, history=None, charged=False)
        return structs.replace(trail, attempts=self.trail.attempts + 1)


class Assignment:
    """A partition that the group assigned to us."""

    def __init__(self, place: Place, progress: Progress) -> None:
        self.place = place
        self.progress = progress
        self.position = progress.base  # the next offset to come
        self.entries: dict[int, Entry] = {}
        self.bytes = 0
        self.gone = False  # revoked: nothing of it can be settled
        self.closing = False  # about to be revoked: no new claims
        self.paused = False


_PATIENCE: Final = 15.0  # seconds for a commit
_PAUSE: Final = 0.05  # seconds until a commit is repeated during a rebalance
_FINAL: Final = 3.0  # seconds for the last commit of a partition

Asked: TypeAlias = "asyncio.Future[None]"


class Committer:
    """
    Commits the progress of partitions, in groups: one commit at a time.

    The broker accepts a commit only from the owner of the partition, so a successful
    commit proves that we own it. A consumer serves one thread, so the poll thread commits.
    """

    def __init__(self, consumer: Consumer, lock: threading.Lock) -> None:
        self.asked = threading.Event()  # wakes the poll_thread thread
        self._consumer = consumer
        self._lock = lock  # of the assignments
        self._loop = asyncio.get_running_loop()
        self._assignments: set[Assignment] = set()
        self._futures: list[Asked] = []
        self._not_before = 0.0

    async def commit(self, assignments: Collection[Assignment]) -> None:
        """
        Commit the progress of assignments, and wait for it.

        Lanes that are no longer ours are left out: look at `gone` afterwards.
        """
        if not assignments:
            return
        future: Asked = self._loop.create_future()
        with self._lock:
            self._assignments.update(assignments)
            self._futures.append(future)
        self.asked.set()
        try:
            async with asyncio.timeout(_PATIENCE):
                await future
        except TimeoutError as error:
            raise Unavailable(
                f"the broker did not answer a commit within {_PATIENCE:.0f} seconds"
            ) from error

    # On the poll thread.

    def serve(self) -> None:
        """Make the requested commits."""
        if not self._futures or time.monotonic() < self._not_before:
            return
        with self._lock:
            assignments, self._assignments = self._assignments, set()
            futures, self._futures = self._futures, []
        try:
            self._write(assignments)
        except _Rebalancing:
            self._not_before = time.monotonic() + _PAUSE
            with self._lock:
                self._assignments |= assignments
                self._futures += futures
        except DeadLetterError as error:
            self._tell(futures, error)
        else:
            self._tell(futures, None)

    def commit_final(self, assignments: Collection[Assignment]) -> None:
        """Commit for the last time, and release the claims."""
        deadline = time.monotonic() + _FINAL
        while True:
            try:
                return self._write(assignments, left=True)
            except _Rebalancing as error:
                if time.monotonic() > deadline:
                    raise Unavailable("the consumer group is rebalancing") from error
                time.sleep(_PAUSE)

    def end(self) -> None:
        """Fail pending commits: the poll thread ends."""
        with self._lock:
            futures, self._futures = self._futures, []
        self._tell(futures, Unavailable("this mailbox is no longer worked here"))

    def _write(self, assignments: Iterable[Assignment], *, left: bool = False) -> None:
        with self._lock:
            offsets = [
                TopicPartition(
                    *assignment.place, assignment.progress.base, assignment.progress.note(left=left)
                )
                for assignment in assignments
                if not assignment.gone
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


class _Rebalancing(Exception):
    """The group is rebalancing: repeat, or find the assignments revoked."""


def _of(error: KafkaException) -> Exception:
    inner = kafka_error(error)
    if inner is not None and inner.code() in REBALANCING:
        return _Rebalancing()
    return translated(error, "committer")
