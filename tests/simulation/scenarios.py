"""Short stories for the n-th fault loop, and how each must end."""

from collections.abc import Collection, Iterator
from typing import Final

from msgspec.structs import replace

from deadletter.core.failure import Reason
from deadletter.core.letter import State
from simulation.crash_points import Scenario
from simulation.evidence import Evidence
from simulation.plans import Blow, Plan, Strike
from simulation.violation import Check, Violation
from simulation.workload import LEASE, Kind, Parcel


def handled(message_id: str) -> Check:
    """It was handled, and there is no letter anybody should look at."""

    def check(evidence: Evidence) -> Iterator[Violation]:
        runs = evidence.effects.of(message_id)
        if not any(run.how == "done" for run in runs):
            yield Violation("ENDS WRONG", f"{message_id} was not handled")
        for letter in evidence.letters:
            if letter.message.id == message_id:
                yield Violation("ENDS WRONG", f"{message_id} is a letter")

    return check


def buried(
    message_id: str,
    reason: Reason,
    *,
    states: Collection[State] = (State.PENDING,),
    replays: int = 0,
) -> Check:
    """It is one letter, for this reason, in one of these states."""

    def check(evidence: Evidence) -> Iterator[Violation]:
        letters = [one for one in evidence.letters if one.message.id == message_id]
        if not letters:
            yield Violation("ENDS WRONG", f"{message_id} is not a letter")
        for letter in letters:
            head = letter.head
            if head.reason is not reason:
                yield Violation("ENDS WRONG", f"{message_id} died of {head.reason}")
            if head.state not in states or head.replays != replays:
                yield Violation("ENDS WRONG", f"{message_id}: {head.state}, {head.replays} replays")

    return check


def _plan(*parcels: Parcel, **more: object) -> Plan:
    usual = Plan(seed=1, processes=1, slots=4, parcels=parcels, pause=4.0)
    return replace(usual, **more)


_BAD: Final = Parcel(id="bad", kind=Kind.BAD, body=b"\x00\xff")
_GOOD: Final = Parcel(id="good", kind=Kind.OK, body=b"ok")
_FLAKY: Final = Parcel(id="flaky", kind=Kind.FLAKY, times=1)
_HOPELESS: Final = Parcel(id="hopeless", kind=Kind.HOPELESS)
_POISON: Final = Parcel(id="poison", kind=Kind.POISON)

SCENARIOS: Final = (
    Scenario(name="success", plan=_plan(_GOOD), checks=(handled("good"),)),
    Scenario(name="success, once", plan=_plan(_GOOD, idempotent=True), checks=(handled("good"),)),
    Scenario(
        name="retry, then success", plan=_plan(_FLAKY, idempotent=True), checks=(handled("flaky"),)
    ),
    Scenario(
        name="exhaustion",
        plan=_plan(_HOPELESS),
        checks=(buried("hopeless", Reason.ATTEMPTS_EXHAUSTED),),
    ),
    Scenario(
        name="exhaustion, once",
        plan=_plan(_HOPELESS, idempotent=True, swept=True),
        checks=(buried("hopeless", Reason.ATTEMPTS_EXHAUSTED),),
    ),
    Scenario(
        name="malformed",
        plan=_plan(_BAD, _GOOD, idempotent=True),
        checks=(buried("bad", Reason.UNDECODABLE), handled("good")),
    ),
    Scenario(
        name="poison",
        plan=_plan(_POISON, _GOOD),
        checks=(buried("poison", Reason.WORKER_LOST), handled("good")),
    ),
    Scenario(
        name="sweep rescue",
        plan=_plan(_POISON, _GOOD, swept=True, idempotent=True),
        checks=(buried("poison", Reason.WORKER_LOST), handled("good")),
    ),
    Scenario(
        name="shutdown",
        plan=_plan(
            Parcel(id="slow", kind=Kind.SLOW, takes=LEASE),
            _GOOD,
            strikes=(Strike(at=1.0, blow=Blow.DEPLOY),),
            calm_at=2.0,
        ),
        checks=(handled("slow"), handled("good")),
    ),
    Scenario(
        name="hurried shutdown",
        plan=_plan(
            Parcel(id="slow", kind=Kind.SLOW, takes=LEASE),
            _BAD,
            idempotent=True,
            strikes=(Strike(at=1.0, blow=Blow.HURRY, seconds=0.5),),
            calm_at=3.0,
        ),
        checks=(handled("slow"), buried("bad", Reason.UNDECODABLE)),
    ),
    Scenario(
        name="office down",
        plan=_plan(
            _BAD,
            _GOOD,
            strikes=(Strike(at=0.0, blow=Blow.OUTAGE, service="office", seconds=2 * LEASE),),
            calm_at=2 * LEASE + 1.0,
        ),
        checks=(buried("bad", Reason.UNDECODABLE), handled("good")),
    ),
)
