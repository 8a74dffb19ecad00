"""The real runtime on the memory engine, as it lives in simulated worlds."""

from collections.abc import Sequence

from deadletter.core.backoff import Exponential
from deadletter.core.brake import BrakePolicy
from deadletter.core.policy import DLQPolicy
from deadletter.ports import Clock, Dice, Engine
from deadletter.runtime.deliveries import ExclusiveGate
from deadletter.runtime.registration import WorkerOptions
from deadletter.runtime.sweep import Sweep
from deadletter.runtime.worker import Worker
from deadletter.stores.memory import open_engine
from simulation.workload import LEASE, MAILBOXES, MAX_ATTEMPTS, TIME_LIMIT
from simulation.world import Looping, Place

POLICY = DLQPolicy(
    max_attempts=MAX_ATTEMPTS, backoff=Exponential(0.5, factor=2.0, cap=8.0, jitter=0.2)
)


def options(place: Place) -> WorkerOptions:
    """How the mailbox of the simulation is worked."""
    return WorkerOptions(
        policy=POLICY,
        slots=place.plan.slots,
        lease=LEASE,
        time_limit=TIME_LIMIT,
        grace=10.0,
        wait=place.plan.pause,
        brake=BrakePolicy(),
        idempotent=place.plan.idempotent,
        consumer="simulation",
    )


def crew(place: Place) -> Sequence[Looping]:
    """A worker per mailbox and one sweep, as in any process."""
    gate = ExclusiveGate()
    mailboxes = MAILBOXES[: place.plan.mailboxes]
    workers = [
        Worker(
            source=place.broker.source(mailbox),
            handler=place.effects.handle,
            options=options(place),
            broker=place.broker,
            letters=place.letters,
            atomic_burial=place.atomic_burial,
            ledger=place.ledger,
            gate=gate,
            clock=place.clock,
            dice=place.dice,
            observe=place.observe,
        )
        for mailbox in mailboxes
    ]
    sweep = Sweep(
        broker=place.broker,
        letters=place.letters,
        atomic_burial=place.atomic_burial,
        ledger=place.ledger,
        policies=dict.fromkeys(mailboxes, POLICY),
        gate=gate,
        clock=place.clock,
        dice=place.dice,
        observe=place.observe,
        interval=place.plan.pause,
    )
    return [*workers, sweep]


async def memory(clock: Clock, dice: Dice) -> Engine:
    """The engine that survives all of it."""
    return await open_engine("memory://", clock=clock, dice=dice)
