"""What is ours at the moment, and until when."""

from datetime import datetime

from deadletter.amqp.channel import Channel
from deadletter.core.message import Delivery


class Claim:
    """
    The receipt of a delivery.

    It is ours while its channel lives, with which all claims end, and its lease runs.
    The broker knows nothing of leases: the channel fences a process that is gone,
    the lease a worker that is stuck inside a living one.
    """

    __slots__ = ("alone", "channel", "crc", "delivery", "settling", "tag", "until")

    def __init__(
        self,
        channel: Channel,
        tag: int,
        until: datetime,
        *,
        alone: bool,
        crc: int | None = None,
    ) -> None:
        self.channel = channel
        self.tag = tag
        self.until = until
        self.alone = alone
        self.crc = crc  # the checksum it came with, if it does not match that
        self.settling = False  # somebody is at it: nobody else may settle it
        self.delivery: Delivery | None = None

    def is_ours(self, now: datetime) -> bool:
        """Whether its lease still runs."""
        return now < self.until
