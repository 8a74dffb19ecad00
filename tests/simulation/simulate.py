"""Running worlds: one, and a failing one until nothing more can be left out."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from deadletter.testing.virtual_time import SeededDice, VirtualClock, run_virtual
from simulation.nemesis import Nemesis, Storm
from simulation.plans import Plan
from simulation.violation import Check
from simulation.world import Crew, IsOver, OpenEngine, Verdict, World

T = TypeVar("T")

Office: TypeAlias = tuple[Crew, IsOver]
"""Somebody who sends letters back, and how to tell that he is done."""


def run_world(
    plan: Plan, crew: Crew, open_engine: OpenEngine, office: Office | None = None
) -> Verdict:
    """Let a world happen, and say what was found wrong with it."""
    operator, is_over = office if office and plan.replays else (None, None)
    main = happen(Storm(plan), crew, open_engine, operator=operator, is_over=is_over)
    return run_virtual(main, seed=plan.seed)


def shrink(plan: Plan, run: Callable[[Plan], Verdict], name: str) -> Plan:
    """Leave out whatever a violation of that name does not need."""
    index = 0
    while (smaller := _without(plan, index)) is not None:
        verdict = run(smaller)
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
    happening = [asyncio.create_task(nemesis.run()), asyncio.create_task(_downstream(world))]
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


def _without(plan: Plan, index: int) -> Plan | None:
    """The plan less its `index`-th strike or parcel; None when there is none."""
    strikes, parcels = plan.strikes, plan.parcels
    if index < len(strikes):
        return replace(plan, strikes=_less(strikes, index))
    index -= len(strikes)
    if index < len(parcels):
        return replace(plan, parcels=_less(parcels, index))
    return None


def _less(items: Sequence[T], index: int) -> tuple[T, ...]:
    return (*items[:index], *items[index + 1 :])
