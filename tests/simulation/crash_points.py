"""
The n-th fault loop: a scenario, once for every call it makes and every way to fail.

In run i the i-th call of a port is hit by one fault. Everything is started again,
drained and judged; then it is the next call's turn, until a run gets by without.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from deadletter.testing.virtual_time import run_virtual
from simulation.faulty import Call, Fault
from simulation.nemesis import Storm
from simulation.plans import Plan
from simulation.simulate import happen
from simulation.violation import Check
from simulation.world import Crew, IsOver, OpenEngine, Verdict

FAULTS: Final = (Fault.DEATH_BEFORE, Fault.DEATH_AFTER, Fault.REQUEST_LOST, Fault.REPLY_LOST)


class Scenario(Struct, frozen=True, kw_only=True):
    """A short story that must end the same way whatever single call goes wrong."""

    name: str
    plan: Plan
    checks: tuple[Check, ...]
    operator: Crew | None = None
    is_over: IsOver | None = None


class CrashPoint(Struct, frozen=True, kw_only=True):
    """One call of a scenario, hit by one fault, and what came of it."""

    number: int
    call: Call | None  # None: the scenario was over before
    fault: Fault
    verdict: Verdict

    def __str__(self) -> str:
        broken = "; ".join(map(str, self.verdict.violations)) or "all is well"
        return f"call {self.number} ({self.call}), {self.fault}: {broken}"


class Tripwire(Storm):
    """Fair weather, but for one call."""

    def __init__(self, plan: Plan, number: int, fault: Fault) -> None:
        super().__init__(plan)
        self.hit: Call | None = None
        self._left = number
        self._fault = fault

    def fault(self, call: Call) -> Fault:
        """What happens to this call."""
        usual = super().fault(call)
        if usual is not Fault.NONE:
            return usual
        self._left -= 1
        if self._left:
            return Fault.NONE
        self.hit = call
        return self._fault

    def delay(self) -> float:
        """Always the same, so that the n-th call is the same one every time."""
        return 0.001


def crash_points(scenario: Scenario, crew: Crew, open_engine: OpenEngine) -> Iterator[CrashPoint]:
    """Every crash point of a scenario, one after another."""
    for fault in FAULTS:
        number = 0
        while True:
            number += 1
            point = _run(scenario, crew, open_engine, number, fault)
            yield point
            if point.call is None:
                break


def _run(
    scenario: Scenario, crew: Crew, open_engine: OpenEngine, number: int, fault: Fault
) -> CrashPoint:
    wire = Tripwire(scenario.plan, number, fault)
    main = happen(
        wire,
        crew,
        open_engine,
        operator=scenario.operator,
        is_over=scenario.is_over,
        checks=scenario.checks,
    )
    verdict = run_virtual(main)
    return CrashPoint(number=number, call=wire.hit, fault=fault, verdict=verdict)
