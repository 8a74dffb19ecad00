"""What we hold, and what we remember of what SQS cannot."""

from typing import Final

from msgspec import Struct

from deadletter.core.message import Delivery
from deadletter.ports.broker import Settlement

from .wire import Received

LONGEST: Final = 43_200.0  # seconds that SQS lets anybody hold a message
_REMEMBERED: Final = 10_000


class Claim(Struct, kw_only=True, eq=False):
    """
    Our hold on one message: the receipt of a delivery.

    It knows how far its settling has come, so that settling can be repeated after
    an answer got lost, and nothing is sent twice.
    """

    mailbox: str
    received: Received
    taken: float  # when, by our monotonic clock
    until: float  # our lease; SQS's own ends later
    alone: bool = False  # it came from the suspects
    settling: Settlement | None = None
    copied: bool = False
    forgotten: bool = False  # SQS was asked to delete it
    answered: bool = True

    def takes(self, settlement: Settlement, now: float) -> bool:
        """Whether this settlement may go on, or begin."""
        if self.settling is None:
            begins = now < self.until
            if begins:
                self.settling, self.answered = settlement, False
            return begins
        if self.settling is not settlement or self.answered:
            return False
        return self.copied or self.forgotten or now < self.until

    def is_ours(self, now: float) -> bool:
        """Whether it is held and nobody has begun to settle it."""
        return self.settling is None and now < self.until

    def room(self, now: float) -> int:
        """For how many more seconds SQS lets us hold or hide it."""
        return int(LONGEST - (now - self.taken))


def claim_of(delivery: Delivery, mailbox: str) -> Claim | None:
    """The claim of a delivery of that mailbox."""
    claim = delivery.receipt
    return claim if isinstance(claim, Claim) and claim.mailbox == mailbox else None


class Memory:
    """
    Stories of messages that cannot be copied: in FIFO queues, and at the size limit.

    Bounded, and gone with the process: then they begin anew, with the receives that
    SQS counted.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}

    def recall(self, id_: str) -> tuple[int, str] | None:
        """How often it was spared, and its story; None when it is not known."""
        return self._known.get(id_)

    def keep(self, id_: str, spared: int, history: str) -> None:
        """Remember that; the oldest may have to go."""
        self._known.pop(id_, None)
        self._known[id_] = (spared, history)
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def drop(self, id_: str) -> None:
        """It has ended."""
        self._known.pop(id_, None)
