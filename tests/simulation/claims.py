"""Whose a delivery is, as seen from outside: the broker said so to whom last."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.attempts import last_number
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery
from deadletter.ports import Settlement
from simulation.faulty import Call

_AT_ONCE: Final = 5.0  # seconds in which a worker finds out that it was too late


class Claims:
    """Every delivery handed out, and what was done by those whose it was not."""

    def __init__(self) -> None:
        self.unfenced: list[str] = []
        self.ended: dict[str, float] = {}  # processes, and when
        self._latest: dict[tuple[str, str], int] = {}
        self._kept_late: list[tuple[str, str, float]] = []
        self._loop = asyncio.get_running_loop()

    def saw(self, call: Call, args: Sequence[Any], result: Any) -> None:
        """A call was applied."""
        match call.verb:
            case "receive":
                self._claimed(result)
            case "settle":
                self._settled(call.process, args[0], result)
            case "keep":
                self._kept(call.process, args[0])

    def left_behind(self) -> frozenset[str]:
        """
        Messages whose letter was kept too late, by a process that ended over it.

        It froze after its last look at the lease, kept a letter of what somebody
        else had by then, and ended before it could take that back. Only an office
        that knows of leases could prevent it.
        """
        return frozenset(
            message_id
            for message_id, process, at in self._kept_late
            if at <= self.ended.get(process, 0.0) < at + _AT_ONCE
        )

    def _claimed(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            message = delivery.message
            if message.lineage is None:  # a copy may be there twice
                self._latest[delivery.mailbox, message.id] = delivery.attempt

    def _settled(
        self, process: str, settlements: Sequence[Settlement], ours: Sequence[bool]
    ) -> None:
        for settlement, applied in zip(settlements, ours, strict=True):
            delivery, message = settlement.delivery, settlement.delivery.message
            latest = self._latest.get((delivery.mailbox, message.id), 0)
            if message.lineage is None and applied and delivery.attempt < latest:
                self.unfenced.append(
                    f"{process} settled attempt {delivery.attempt} of {message.id}, "
                    "which was somebody else's by then"
                )

    def _kept(self, process: str, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            latest = self._latest.get((letter.head.source, letter.message.id), 0)
            if last_number(letter.history) < latest:
                late = (letter.message.id, process, self._loop.time())
                self._kept_late.append(late)
