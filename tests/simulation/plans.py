"""
What goes wrong in a simulated world, decided from its seed before it begins.

A plan is a value: parcels to send, rates of faults on the wire, and a list of blows
with their times. Taking one of them out gives another world that is otherwise the
same, which is how a failing one is made small.
"""

from enum import StrEnum
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from simulation.workload import LEASE, Kind, Parcel, draw_parcels

CALM_AT: Final = 60.0  # seconds: from then on nothing goes wrong any more
DRAINED_BY: Final = 600.0  # ...and by then everything must have an outcome
STUCK: Final = Parcel(id="stuck", kind=Kind.STUCK)  # several look like an outage
HOG: Final = Parcel(id="hog", kind=Kind.HOG, times=3)
_STORMY: Final = [
    *[Kind.OK, Kind.NEEDY, Kind.FLAKY, Kind.HOPELESS, Kind.BAD, Kind.LIAR] * 2,
    *[Kind.SLOW, Kind.POISON, Kind.MOODY, Kind.FLEETING],
]
SERVICES: Final = ("broker", "office", "ledger")


class Blow(StrEnum):
    """Something that happens to a process or a service."""

    KILL = "kill"
    PAUSE = "pause"  # SIGSTOP, SIGCONT after a while
    DEPLOY = "deploy"  # asked to stop, and started again
    HURRY = "hurry"  # ...asked twice
    OUTAGE = "outage"  # a service is down for a while
    PARTITION = "partition"  # ...for one process only
    STEP = "step"  # a process's wall clock is set
    STORE_STEP = "store-step"  # the store's is, forward


class Strike(Struct, frozen=True, kw_only=True):
    """One blow, when it falls and on whom."""

    at: float
    blow: Blow
    process: int = 0
    service: str = ""
    seconds: float = 0.0


class Rates(Struct, frozen=True, kw_only=True):
    """How often a single call goes wrong, until the world calms down."""

    request_lost: float = 0.0
    reply_lost: float = 0.0
    death_before: float = 0.0
    death_after: float = 0.0
    slow: float = 0.0  # share of calls that take seconds

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong."""
        return self == Rates()


class Plan(Struct, frozen=True, kw_only=True):
    """A world before it begins."""

    seed: int
    processes: int = 2
    slots: int = 8
    mailboxes: int = 1
    idempotent: bool = False
    replays: bool = False  # somebody sends letters back
    swept: bool = False  # the mailboxes have a limit of their own, for the sweep
    parcels: tuple[Parcel, ...] = ()
    rates: Rates = Rates()
    strikes: tuple[Strike, ...] = ()
    downstream_down: tuple[float, float] | None = None  # from, until
    calm_at: float = CALM_AT
    together: bool = True  # mailboxes and office are one engine
    pause: float = 1.0  # seconds between two polls, and two sweeps

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong but what handlers do."""
        return self.rates.is_calm and not self.strikes

    def has(self, *kinds: Kind) -> bool:
        """Whether a parcel of one of these kinds is sent."""
        return any(parcel.kind in kinds for parcel in self.parcels)


def calm_plan(seed: int) -> Plan:
    """A world in which nothing goes wrong: every run of a handler must be explained."""
    random = Random(f"calm {seed}")
    kinds = [Kind.OK, Kind.SLOW, Kind.FLAKY, Kind.HOPELESS, Kind.BAD, Kind.LIAR]
    mailboxes = random.randint(1, 2)
    parcels = draw_parcels(random, kinds, random.randint(5, 30), until=20.0, mailboxes=mailboxes)
    if random.random() < 0.3:
        parcels = (*parcels, STUCK)
    return Plan(
        seed=seed,
        processes=random.randint(1, 3),
        slots=random.choice([1, 4, 16]),
        mailboxes=mailboxes,
        idempotent=random.random() < 0.5,
        swept=random.random() < 0.5,
        parcels=parcels,
    )


def poison_plan(seed: int) -> Plan:
    """A world in which only poison kills: nobody else may be charged for it."""
    random = Random(f"poison {seed}")
    kinds = [Kind.OK] * 8 + [Kind.SLOW, Kind.FLAKY, Kind.POISON, Kind.POISON]
    mailboxes = random.randint(1, 2)
    return Plan(
        seed=seed,
        processes=random.randint(1, 3),
        slots=random.choice([4, 8, 16]),
        mailboxes=mailboxes,
        idempotent=random.random() < 0.5,
        swept=random.random() < 0.5,
        parcels=draw_parcels(
            random, kinds, random.randint(15, 40), until=10.0, mailboxes=mailboxes
        ),
    )


def outage_plan(seed: int) -> Plan:
    """A world whose downstream is down for a while: nobody may be buried for it."""
    random = Random(f"outage {seed}")
    # Few enough for every probe to hurt, and enough for the brake to open in time.
    processes, count = random.choice([(1, random.randint(5, 10)), (2, 60)])
    parcels = draw_parcels(random, [Kind.NEEDY], count, until=0.0)
    return Plan(
        seed=seed,
        processes=processes,
        slots=random.choice([8, 16]),
        parcels=tuple(replace(p, at=5.0, takes=0.01) for p in parcels),
        downstream_down=(4.0, random.uniform(100.0, 300.0)),
    )


def frozen_plan(seed: int) -> Plan:
    """A world whose processes freeze, and come back to work that is not theirs."""
    random = Random(f"frozen {seed}")
    kinds = [Kind.HOG, Kind.MOODY, Kind.MOODY, Kind.MOODY, Kind.OK, Kind.FLAKY]
    return Plan(
        seed=seed,
        processes=random.randint(1, 3),
        slots=random.choice([1, 4]),
        idempotent=random.random() < 0.7,
        swept=random.random() < 0.7,
        parcels=draw_parcels(random, kinds, random.randint(4, 12), until=10.0),
        together=random.random() < 1 / 2,
    )


def storm_plan(seed: int) -> Plan:
    """A world in which everything goes wrong; each kind of fault is off in a third."""
    random = Random(f"storm {seed}")

    def rate(most: float) -> float:
        return 0.0 if random.random() < 1 / 3 else random.uniform(0.0, most)

    processes, mailboxes = random.randint(1, 3), random.randint(1, 2)
    start, doubled = random.uniform(0.0, 30.0), rate(0.1)
    parcels = draw_parcels(random, _STORMY, random.randint(10, 40), until=40.0, mailboxes=mailboxes)
    parcels += random.choice([(), (STUCK,), (HOG,), (STUCK, HOG)])
    return Plan(
        seed=seed,
        processes=processes,
        slots=random.choice([1, 4, 8, 16]),
        mailboxes=mailboxes,
        idempotent=random.random() < 0.5,
        swept=random.random() < 0.5,
        parcels=tuple(
            replace(parcel, copies=1 + (random.random() < doubled), heals=random.random() < 0.5)
            for parcel in parcels
        ),
        replays=random.random() < 1 / 3,
        downstream_down=(start, start + 20.0) if random.random() < 1 / 3 else None,
        rates=Rates(
            request_lost=rate(0.1),
            reply_lost=rate(0.1),
            death_before=rate(0.02),
            death_after=rate(0.02),
            slow=rate(0.05),
        ),
        strikes=_strikes(random, processes),
        together=random.random() < 3 / 4,
    )


def plan_of(seed: int) -> Plan:
    """The world of a seed: most are storms, some are quieter and judged harder."""
    return _MAKERS[seed % len(_MAKERS)](seed)


_MAKERS: Final = (
    *(calm_plan, storm_plan, poison_plan, storm_plan),
    *(outage_plan, storm_plan, frozen_plan, storm_plan),
)


def _strikes(random: Random, processes: int) -> tuple[Strike, ...]:
    blows = [blow for blow in Blow if random.random() >= 1 / 3]
    strikes = [
        _strike(random, blow, processes) for blow in blows for _ in range(random.randint(1, 4))
    ]
    return tuple(sorted(strikes, key=lambda strike: strike.at))


def _strike(random: Random, blow: Blow, processes: int) -> Strike:
    seconds = random.uniform(0.5, 4 * LEASE)
    if blow is Blow.STEP:
        seconds *= random.choice([-100.0, -1.0, 1.0, 100.0])
    return Strike(
        at=random.uniform(0.0, CALM_AT),
        blow=blow,
        process=random.randrange(processes),
        service=random.choice(SERVICES),
        seconds=seconds,
    )
