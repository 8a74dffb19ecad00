"""Worlds of the real runtime, with somebody in the office."""

from deadletter.testing.plans import Plan
from deadletter.testing.simulate import run_world
from deadletter.testing.world import Verdict
from simulation.operator_crew import is_replayed, operator
from simulation.real_crew import crew, memory


def happen(plan: Plan) -> Verdict:
    """Let a world happen."""
    return run_world(plan, crew, memory, (operator, is_replayed))


def broken(plan: Plan) -> set[str]:
    """The promises that were broken in it."""
    return {violation.name for violation in happen(plan).violations}
