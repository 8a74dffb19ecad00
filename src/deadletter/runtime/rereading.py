"""
Deliveries that do not match their checksum: read again before they are believed.

What was changed on its way is whole where it is stored, and comes whole the next
time. What comes changed in the same way again is stored so, and is handed on: nobody
runs it, and it is buried as corrupt.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from deadletter.core.errors import BackendError
from deadletter.core.events import Observer, OutOfReach
from deadletter.core.message import Delivery
from deadletter.ports import Released, Source

from .reach import Calls

_REMEMBERED: Final = 1000  # contents that did not match
_PAUSE: Final = 0.2  # seconds until they are read again


class Rereading:
    """What one loop has received corrupt, and lets be read again."""

    def __init__(self, source: Source, *, calls: Calls, observe: Observer) -> None:
        self._source = source
        self._calls = calls
        self._observe = observe
        self._seen: dict[int, None] = {}  # oldest first

    async def sorted_out(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return what can be believed; the rest goes back, unseen and uncharged."""
        if not any(delivery.corrupt for delivery in deliveries):
            return deliveries
        doubtful = [d for d in deliveries if d.corrupt and not self._is_certain(d)]
        if not doubtful:
            return deliveries
        self._observe(
            OutOfReach(
                mailbox=self._source.mailbox,
                what="broker",
                text=(
                    f"{len(doubtful)} of {len(deliveries)} messages arrived changed"
                    " (checksum): they are read again"
                ),
                tries=1,
            )
        )
        back = [Released(one, _PAUSE, None, charged=False) for one in doubtful]
        with suppress(BackendError):  # their leases run out, and they come again
            await self._calls.limited("broker", self._source.settle(back))
        returned = {id(one) for one in doubtful}
        return [one for one in deliveries if id(one) not in returned]

    def _is_certain(self, delivery: Delivery) -> bool:
        message = delivery.message
        content = hash((message.id, message.body, message.headers))
        if content in self._seen:
            return True
        while len(self._seen) >= _REMEMBERED:
            self._seen.pop(next(iter(self._seen)))
        self._seen[content] = None
        return False
