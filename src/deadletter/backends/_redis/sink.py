"""
The way into one mailbox.

When a connection breaks, what was asked for may have been done: a send that is
repeated carries the token it had.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from deadletter.core.message import Message

from .box import Box
from .link import Argument, surely
from .times import seconds


class BoxSink(ABC):
    """The way into one mailbox; engines say what their script wants to know."""

    def __init__(self, box: Box) -> None:
        self.mailbox = box.name
        self._box = box

    @abstractmethod
    def arguments(self, messages: Sequence[Message]) -> list[Argument]:
        """What the script that sends is told of these."""

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none; returns as soon as the server says it has them."""
        if not messages:
            return
        args, wait = self.arguments(messages), seconds(delay)
        # Of what waits it is noted for how long, which takes the other keys as well.
        keys = self._box.keys[: None if wait else self._box.keys_to_send]
        with self._box.lanes.lane((tuple(messages), wait)) as (token, before):
            said = (token, before, wait, *args)
            while not await surely(lambda _: self._send(keys, *said)):
                await self._box.make()

    async def _send(self, keys: Sequence[str], *said: Argument) -> Any:
        return await self._box.link.timed(self._box.verbs.send, keys, *said)
