"""A replayed copy that the sweep fails for good is an outcome like any other."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from deadletter import DLQPolicy
from deadletter.core.campaign import Outcome
from deadletter.core.failure import Trouble
from deadletter.core.letter import By, State
from deadletter.core.message import Lineage, Message
from deadletter.core.policy import Disposition
from deadletter.office.replay import Replay
from deadletter.runtime.deliveries import ExclusiveGate
from deadletter.runtime.sweep import Sweep
from deadletter.system import SystemClock, SystemDice
from rig import Rig


async def test_a_copy_that_expired_and_is_failed_settles_its_replay(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/shop.db")
    policy = DLQPolicy(max_attempts=1, dispositions={Trouble.EXPIRED: Disposition.FAIL})

    @rig.app.handler("orders", policy=policy)
    async def handle(body: bytes) -> None:
        raise ValueError("no")

    async with rig.working():
        await rig.app.send("orders", b"x", id="one")
        await rig.drained("orders")
    async with rig.app:
        engine, store = await rig.app.engine(), await rig.app.letters()
        (letter,) = await rig.letters()
        clock = SystemClock()
        replay = Replay(store, engine.broker, clock, SystemDice())
        campaign = await replay.start("", By("somebody", "try again"))
        taken = await store.take_replay(campaign.id, limit=1)
        lineage = Lineage(letter_id=letter.id, generation=1, campaign=campaign.id)
        copy = Message(
            id="one",
            body=b"x",
            sent_at=clock.now(),
            lineage=lineage,
            expires_at=datetime.now(UTC) - timedelta(seconds=1),
        )
        await engine.broker.sink("orders").send([copy])
        await store.sent_replay(campaign.id, [one.letter_id for one in taken])
        sweep = Sweep(
            broker=engine.broker,
            letters=store,
            atomic_burial=engine.atomic_burial,
            ledger=None,
            policies={"orders": policy},
            gate=ExclusiveGate(),
            clock=clock,
            dice=SystemDice(),
            observe=rig.events.append,
        )

        await sweep.once()

        (after,) = await rig.letters()
        assert after.head.state is State.PENDING
        assert (await replay.status(campaign.id)).counts == {Outcome.FAILED: 1}
