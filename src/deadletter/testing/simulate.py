"""Running worlds: one, and a failing one until nothing more can be left out."""

import asyncio

from .nemesis import Nemesis, Storm
from .oracle import Check
from .plans import Plan, without
from .virtual_loop import run_virtual
from .virtual_time import SeededDice, VirtualClock
from .world import Crew, IsOver, OpenEngine, Verdict, World


def run_world(plan: Plan, crew: Crew, open_engine: OpenEngine) -> Verdict:
    """Let a world happen, and say what was found wrong with it."""
    return run_virtual(happen(Storm(plan), crew, open_engine), seed=plan.seed)


def shrink(plan: Plan, crew: Crew, open_engine: OpenEngine, name: str) -> Plan:
    """Leave out whatever a violation of that name does not need."""
    index = 0
    while (smaller := without(plan, index)) is not None:
        verdict = run_world(smaller, crew, open_engine)
        if any(violation.name == name for violation in verdict.violations):
            plan = smaller
        else:
            index += 1
    return plan


async def happen(
    storm: Storm,
    crew: Crew,
    open_engine: OpenEngine,
    *,
    operator: Crew | None = None,
    is_over: IsOver | None = None,
    checks: tuple[Check, ...] = (),
) -> Verdict:
    """A world from its beginning to its verdict."""
    plan, clock = storm.plan, VirtualClock()
    world = World(plan, storm, crew, clock=clock)
    engine = await open_engine(clock, SeededDice(f"store {plan.seed}", clock))
    await world.begin(engine, operator)
    nemesis = Nemesis(storm, world.machines, clock, world.note)
    happening = [
        asyncio.create_task(nemesis.run()),
        asyncio.create_task(_downstream(world)),
    ]
    if not plan.is_calm:
        await asyncio.sleep(plan.calm_at)
        nemesis.relent()
    await world.drained(is_over)
    for task in happening:
        task.cancel()
    await world.stop()
    return await world.verdict(*checks)


async def _downstream(world: World) -> None:
    if world.plan.downstream_down is None:
        return
    start, end = world.plan.downstream_down
    await asyncio.sleep(start)
    world.effects.downstream_is_up = False
    await asyncio.sleep(end - start)
    world.effects.downstream_is_up = True
