"""Worlds of the real runtime, with somebody in the office."""

from simulation.operator_crew import is_replayed, operator
from simulation.plans import Plan
from simulation.real_crew import crew, memory
from simulation.simulate import run_world
from simulation.world import Verdict


def happen(plan: Plan) -> Verdict:
    """Let a world happen."""
    return run_world(plan, crew, memory, (operator, is_replayed))


def broken(plan: Plan) -> set[str]:
    """The promises that were broken in it."""
    return {violation.name for violation in happen(plan).violations}
