"""Whose a delivery is, as seen from outside: the broker said so to whom last."""

from collections.abc import Sequence
from typing import Any

from .faulty import Call


class Claims:
    """Every delivery handed out, and every settlement by somebody it was not his."""

    def __init__(self) -> None:
        self.unfenced: list[str] = []
        self._latest: dict[tuple[str, str], int] = {}

    def saw(self, call: Call, args: Sequence[Any], result: Any) -> None:
        """A call was applied."""
        if call.verb == "receive":
            for delivery in result:
                if delivery.message.lineage is None:
                    self._latest[_key(delivery)] = delivery.attempt
        elif call.verb == "settle":
            for settlement, applied in zip(args[0], result, strict=True):
                delivery = settlement.delivery
                if delivery.message.lineage is not None:  # may be there twice
                    continue
                if applied and delivery.attempt < self._latest.get(_key(delivery), 0):
                    self.unfenced.append(
                        f"{call.process} settled attempt {delivery.attempt} of "
                        f"{delivery.message.id}, which was somebody else's by then"
                    )


def _key(delivery: Any) -> tuple[str, str]:
    return delivery.mailbox, delivery.message.id
