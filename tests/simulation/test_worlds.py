"""The real runtime in simulated worlds: whatever happens, the promises hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from simulation import mutants
from simulation.happening import broken, happen
from simulation.plans import Blow, Plan, Strike, plan_of, storm_plan
from simulation.simulate import shrink
from simulation.workload import LEASE, MAX_ATTEMPTS, Kind, Parcel

BLOCK = 10
SEEDS = int(os.environ.get("SIMULATED_WORLDS", "60"))  # thousands now and then
TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, SEEDS, BLOCK))
def test_the_promises_hold_in_every_world(start: int) -> None:
    for seed in range(start, start + BLOCK):
        verdict = happen(plan_of(seed))

        assert not verdict.violations, f"seed {seed}\n{verdict.story()}"


@pytest.mark.parametrize("seed", range(8))
def test_the_same_seed_gives_the_same_world(seed: int) -> None:
    first, second = happen(plan_of(seed)), happen(plan_of(seed))

    assert first.lines == second.lines
    assert first.digest == second.digest
    assert first.digest != happen(plan_of(seed + 8)).digest


@pytest.mark.slow
def test_a_world_does_not_depend_on_how_python_hashes() -> None:
    program = (
        "from simulation.plans import storm_plan;"
        "from simulation.happening import happen;"
        "print(*[happen(storm_plan(seed)).digest for seed in range(5)])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(said) == 1


def test_a_failing_world_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants.random_letter_ids(monkeypatch)
    plan = next(p for p in map(storm_plan, range(20)) if "DOUBLE LETTER" in broken(p))

    small = shrink(plan, happen, "DOUBLE LETTER")

    assert "DOUBLE LETTER" in broken(small)
    assert len(small.parcels) < len(plan.parcels)


STUCK = Parcel(id="stuck", kind=Kind.STUCK)
FOUND = {
    # Its lease was lost while its key was being claimed: it ran all the same, and
    # no time limit could reach it.
    "lost before it began": Plan(
        seed=1,
        processes=1,
        idempotent=True,
        parcels=(STUCK, Parcel(id="ok", kind=Kind.OK, at=20.0)),
        strikes=(
            Strike(at=0.0, blow=Blow.OUTAGE, service="ledger", seconds=3 * LEASE),
            Strike(at=0.2, blow=Blow.OUTAGE, service="broker", seconds=2 * LEASE),
        ),
        calm_at=4 * LEASE,
    )
}


@pytest.mark.parametrize("name", FOUND)
def test_found_violations_do_not_recur(name: str) -> None:
    verdict = happen(FOUND[name])

    assert not verdict.violations, verdict.story()


def test_no_letter_waits_of_what_a_frozen_worker_has_done() -> None:
    kills = tuple(Strike(at=at, blow=Blow.KILL) for at in (3.0, 12.0, 21.0, 30.0))
    freeze = Strike(at=47.0, blow=Blow.PAUSE, seconds=7.0)
    slow = Parcel(id="slow", kind=Kind.SLOW, takes=3 * LEASE)
    plan = Plan(
        seed=0,
        processes=1,
        idempotent=True,
        swept=True,
        parcels=(slow,),
        strikes=(*kills, freeze),
        calm_at=70.0,
    )

    verdicts = [happen(replace(plan, seed=seed)) for seed in range(12)]

    for verdict in verdicts:
        assert not verdict.violations, verdict.story()  # no letter is open, above all
        assert verdict.events["lease-lost"] == 1  # its last attempt came too late
    # When both wake up, either the sweep asks the ledger first, and the worker closes
    # the letter, or the worker is first, and nothing is buried.
    assert {verdict.events["buried"] for verdict in verdicts} == {0, 1}


def test_poison_is_run_as_often_as_allowed_and_kills_nobody_else() -> None:
    good = tuple(Parcel(id=f"good{n}", kind=Kind.OK, takes=1.0) for n in range(20))
    plan = Plan(
        seed=1,
        processes=1,
        slots=16,
        parcels=(*good, Parcel(id="poison", kind=Kind.POISON, takes=0.5)),
    )

    verdict = happen(plan)

    assert not verdict.violations, verdict.story()
    # Once in company, which is nobody's fault, and then alone to the limit.
    assert verdict.boots == 1 + MAX_ATTEMPTS + 1
    assert verdict.events["buried"] == 1


def test_nothing_is_fetched_while_the_office_is_down() -> None:
    bad = tuple(Parcel(id=f"bad{n}", kind=Kind.BAD) for n in range(3))
    late = tuple(Parcel(id=f"late{n}", kind=Kind.OK, at=10.0) for n in range(10))
    outage = Strike(at=0.0, blow=Blow.OUTAGE, service="office", seconds=60.0)
    plan = Plan(seed=1, processes=1, parcels=(*bad, *late), strikes=(outage,))

    verdict = happen(plan)

    assert not verdict.violations, verdict.story()
    tries = verdict.hits["outage office.bury"]
    assert 5 < tries < 60  # patient, and not a busy loop
    assert happen(replace(plan, strikes=())).seconds < 20
