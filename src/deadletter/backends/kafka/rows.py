"""A record in hand, and the partition it is of."""

from typing import TypeAlias

from msgspec import structs

from deadletter.core.message import Delivery, Message

from .offsets import Progress
from .wire import Raw, Trail, micros, when

Place: TypeAlias = tuple[str, int]  # topic and partition


class Row:
    """A record in hand that has not ended."""

    __slots__ = (
        *("ahead", "counted", "due", "ended", "first_at", "lane", "lease", "leased"),
        *("message", "offset", "raw", "seq", "size", "token", "trail"),
    )

    def __init__(
        self,
        lane: "Lane",
        offset: int,
        raw: Raw,
        message: Message,
        trail: Trail,
        *,
        due: int,
        seq: int,
    ) -> None:
        self.lane = lane
        self.offset = offset
        self.raw = raw
        self.message = message
        self.trail = trail
        self.due = due
        self.seq = seq
        self.first_at = trail.first_at
        self.size = len(raw.value or b"") + len(trail.history) + 500
        self.token: int | None = None  # whose it is; None when nobody's
        self.leased = 0  # until when
        self.lease = 0  # ...and how long that was to last, in microseconds
        self.counted = False  # whether this claim is an attempt
        self.ended = False  # settled; the broker is yet to hear of it
        self.ahead = False  # counted for whoever comes next

    @property
    def origin(self) -> tuple[str, int, int]:
        """Where it was first."""
        topic, partition = self.lane.place
        return self.trail.origin or (topic, partition, self.offset)

    @property
    def attempts(self) -> int:
        """How many there have been, this one included."""
        return self.trail.attempts + self.counted

    def expired(self, now: int) -> bool:
        """Whether it is too late for it."""
        expires_at = self.message.expires_at
        return expires_at is not None and micros(expires_at) <= now

    def delivery(self, mailbox: str, now: int) -> Delivery:
        """Its handing-over."""
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

    def released(
        self, due: int, wait: int = 0, *, history: str | None, charged: bool
    ) -> Trail:
        """The trail with which it is handed back."""
        # Its handler has run and its worker lives: it is proven. What comes back
        # unrun, and so uncharged and without a story, is not.
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
        """The trail of one that goes on waiting elsewhere."""
        return structs.replace(self.trail, due=self.due, origin=self.origin)

    def lost(self, due: int) -> Trail:
        """The trail of one whose worker vanished with it."""
        # Lost in company, it may have been a neighbour's fault: not charged. Lost
        # alone, as suspects are, it was its own.
        trail = self.released(due, history=None, charged=self.trail.suspect)
        return structs.replace(trail, attempts=self.trail.attempts + 1, suspect=True)

    def left(self, due: int) -> Trail:
        """The trail of one that was given up unfinished when its partition moved."""
        trail = self.released(due, history=None, charged=False)
        return structs.replace(trail, attempts=self.trail.attempts + 1)


class Lane:
    """A partition that is ours for now."""

    def __init__(self, place: Place, progress: Progress) -> None:
        self.place = place
        self.progress = progress
        self.position = progress.base  # the next offset to come
        self.rows: dict[int, Row] = {}
        self.bytes = 0
        self.gone = False  # no longer ours: nothing of it can be settled
        self.closing = False  # about to be: nothing more is handed out
        self.paused = False
