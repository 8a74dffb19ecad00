"""Burying in memory: nothing can come between a look and a letter."""

from collections.abc import Sequence

from deadletter.ports.burial import Burial
from deadletter.ports.letters import Kept

from .letters import MemoryLetters
from .queue import MemoryBroker


class MemoryUndertaker:
    """Keeps letters only of what is still ours."""

    def __init__(self, broker: MemoryBroker, letters: MemoryLetters) -> None:
        self._broker = broker
        self._letters = letters

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """Keep the letters of deliveries that are still ours."""
        now = self._broker.clock.now()
        ours = [
            burial
            for burial in burials
            if self._broker.box(burial.delivery.mailbox).ours(burial.delivery, now)
        ]
        kept = await self._letters.keep([burial.letter for burial in ours])
        by_delivery = {id(b.delivery): k for b, k in zip(ours, kept, strict=True)}
        return [by_delivery.get(id(burial.delivery)) for burial in burials]
