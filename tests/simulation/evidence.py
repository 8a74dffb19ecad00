"""What is left when a simulated world has come to rest."""

from collections import Counter

from msgspec import Struct

from deadletter.core.campaign import Campaign
from deadletter.core.letter import DeadLetter
from deadletter.ports import Engine, LedgerKey, LedgerState, LetterStore, QueueInfo
from simulation.plans import Plan
from simulation.workload import Effects


class Evidence(Struct, frozen=True, kw_only=True):
    """All that is known of a world, from inside and outside of the system."""

    plan: Plan
    effects: Effects
    sent: Counter[str]  # message ids, as often as the broker confirmed them
    letters: tuple[DeadLetter, ...]
    queues: tuple[QueueInfo, ...]
    ledger: dict[tuple[str, int], LedgerState | None]  # by message id and generation
    complaints: tuple[str, ...]  # what the office itself finds wrong
    campaigns: tuple[Campaign, ...] = ()
    unfenced: tuple[str, ...] = ()  # settled by somebody whose it no longer was
    left_behind: frozenset[str] = frozenset()  # letters nobody could take back
    crashes: tuple[str, ...] = ()  # errors that came out of the runtime
    unstopped: tuple[str, ...] = ()  # processes that did not stop when asked to
    hits: Counter[str] = Counter()  # faults on the wire, by kind and verb

    @property
    def is_calm(self) -> bool:
        """Whether nothing went wrong but what handlers do, and a reply or two."""
        return self.plan.is_calm and not any("death" in hit for hit in self.hits)

    @property
    def residue(self) -> int:
        """How many messages have no outcome yet."""
        return sum(map(left_in, self.queues))


async def all_letters(store: LetterStore) -> tuple[DeadLetter, ...]:
    """Every letter of an office, as its surfaces list them."""
    ids: list[str] = []
    after = None
    while True:
        page = await store.find(limit=50, after=after)
        ids += [head.id for head in page.heads]
        if page.after is None:
            return tuple(await store.get(ids))
        after = page.after


def left_in(queue: QueueInfo) -> int:
    """How many messages are in a mailbox."""
    return queue.ready + queue.delayed + queue.claimed + queue.suspects


async def ledger_of(engine: Engine, effects: Effects) -> dict[tuple[str, int], LedgerState | None]:
    """What the ledger says of every message and generation that was run."""
    assert engine.ledger is not None
    wanted = sorted({(run.id, run.generation) for run in effects.runs})
    keys = [LedgerKey(effects.parcels[key].mailbox, key, generation) for key, generation in wanted]
    return dict(zip(wanted, await engine.ledger.look(keys), strict=True))
