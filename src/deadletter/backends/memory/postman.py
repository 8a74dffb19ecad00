"""Sending letters back in memory: nothing can come between taking and sending."""

from deadletter.core.message import Lineage
from deadletter.core.replaying import copied
from deadletter.ports.postman import Posted

from .letters import MemoryLetters
from .queue import MemoryBroker


class MemoryPostman:
    """Sends letters back to mailboxes of the same process."""

    at_once = 1_000

    def __init__(self, broker: MemoryBroker, letters: MemoryLetters) -> None:
        self._broker = broker
        self._letters = letters

    async def send_back(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Posted:
        """Send the next letters of a running campaign."""
        taken = await self._letters.take_replay(
            campaign, limit=limit, leave_out=leave_out, keys=keys
        )
        to, now = self._letters.target_of(campaign), self._broker.clock.now()
        for one in taken:
            lineage = Lineage(
                letter_id=one.letter_id, generation=one.generation, campaign=campaign
            )
            copy = copied(one.message, lineage, now)
            await self._broker.sink(to or one.source).send([copy])
        await self._letters.sent_replay(campaign, [one.letter_id for one in taken])
        return Posted(len(taken), sum(len(one.message.body) for one in taken))
