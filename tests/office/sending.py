"""What consumers do with replayed copies, for tests."""

from collections.abc import Sequence

from deadletter.core.campaign import Outcome
from deadletter.core.message import Delivery
from deadletter.ports import Engine, LetterStore, ReplaySettled


async def received(engine: Engine, mailbox: str = "orders") -> Sequence[Delivery]:
    source = engine.broker.source(mailbox)
    return await source.receive(limit=10_000, wait=0, lease=60)


async def confirm(store: LetterStore, deliveries: Sequence[Delivery]) -> None:
    lineages = [one.message.lineage for one in deliveries if one.message.lineage]
    await store.settle_replays(
        [ReplaySettled(one.letter_id, one.generation, Outcome.CONFIRMED) for one in lineages]
    )
