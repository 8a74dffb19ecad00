"""Every call of a scenario, hit by every single fault: the end is the same."""

import pytest

from deadletter.core.failure import Reason
from deadletter.core.letter import State
from simulation.crash_points import Scenario, crash_points
from simulation.operator_crew import is_replayed, operator
from simulation.plans import Plan
from simulation.real_crew import crew, memory
from simulation.scenarios import SCENARIOS, buried
from simulation.workload import Kind, Parcel


def replay_scenario(name: str, *, heals: bool, idempotent: bool) -> Scenario:
    parcel = Parcel(id="bad", kind=Kind.BAD, body=b"\x00\xff", heals=heals)
    ends = {State.REPLAYED} if heals else {State.PENDING}
    if heals:
        # Its first worker died before it could forget the original, which came again
        # and died again: before the copy was handled, and was taken for it; or after,
        # which only a ledger would have prevented.
        ends |= {State.CLOSED} if idempotent else {State.CLOSED, State.PENDING}
    return Scenario(
        name=name,
        plan=Plan(
            seed=1, processes=1, slots=4, parcels=(parcel,), idempotent=idempotent, pause=4.0
        ),
        checks=(buried("bad", Reason.UNDECODABLE, states=ends, replays=1),),
        operator=operator,
        is_over=is_replayed,
    )


REPLAYS = [
    replay_scenario("replay confirmed", heals=True, idempotent=False),
    replay_scenario("replay confirmed, once", heals=True, idempotent=True),
    replay_scenario("replay failed again", heals=False, idempotent=False),
    replay_scenario("replay failed again, once", heals=False, idempotent=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [*SCENARIOS, *REPLAYS], ids=lambda s: s.name)
def test_no_single_fault_changes_the_end_of_a_scenario(scenario: Scenario) -> None:
    points = list(crash_points(scenario, crew, memory))

    assert len(points) > 20
    assert [str(point) for point in points if point.verdict.violations] == []
