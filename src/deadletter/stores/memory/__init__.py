"""
Mailboxes, office and ledger in memory.

    memory://     gone with the process; for tests, demos and trying things out
"""

from collections.abc import Sequence
from typing import Literal

from deadletter.core.errors import ConfigError
from deadletter.core.message import Lineage
from deadletter.core.replay_rules import copied
from deadletter.ports.broker import AtomicBurial, AtomicReplay, Broker, Burial, Posted
from deadletter.ports.engine import AccessStore, ItemStore, Ledger
from deadletter.ports.features import Clock, Dice, Durability, Features
from deadletter.ports.letters import Kept, LetterStore

from .access import MemoryAccess
from .items import MemoryItems
from .ledger import MemoryLedger
from .letters import MemoryLetters
from .queue import MemoryBroker

# Sending letters back in memory: nothing can come between taking and sending.


class MemoryAtomicReplay:
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
            lineage = Lineage(letter_id=one.letter_id, generation=one.generation, campaign=campaign)
            copy = copied(one.message, lineage, now)
            await self._broker.sink(to or one.source).send([copy])
        await self._letters.sent_replay(campaign, [one.letter_id for one in taken])
        return Posted(len(taken), sum(len(one.message.body) for one in taken))


# Burying in memory: nothing can come between a look and a letter.


class MemoryAtomicBurial:
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


class MemoryEngine:
    """Everything in memory, for one process."""

    any_loop: Literal[True] = True

    def __init__(self, *, clock: Clock, dice: Dice) -> None:
        self.features = Features(
            engine="memory", durability=Durability.NONE, shared=False, owns_fields=True
        )
        broker = MemoryBroker(self.features, clock=clock)
        letters = MemoryLetters(clock=clock, dice=dice)
        self.broker: Broker = broker
        self.letters: LetterStore | None = letters
        self.atomic_burial: AtomicBurial | None = MemoryAtomicBurial(broker, letters)
        self.atomic_replay: AtomicReplay | None = MemoryAtomicReplay(broker, letters)
        self.ledger: Ledger | None = MemoryLedger(clock=clock)
        self.access: AccessStore = MemoryAccess(clock)
        self.items: ItemStore = MemoryItems(clock=clock, dice=dice)

    async def close(self) -> None:
        """Nothing is kept, so there is nothing to finish."""


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> MemoryEngine:
    """A new engine in memory; each call opens another one."""
    if url not in {"memory:", "memory://", "memory:///"}:
        raise ConfigError(f"{url!a}: nothing follows memory://, each opening is a new one")
    return MemoryEngine(clock=clock, dice=dice)
