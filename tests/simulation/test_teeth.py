"""Planted defects are found: a mutant that survives means a missing check."""

from collections.abc import Callable

import pytest

from simulation import mutants
from simulation.happening import broken
from simulation.mutants import Mutant
from simulation.plans import Plan, calm_plan, frozen_plan, outage_plan, poison_plan, storm_plan

MOST_SEEDS = 300

MUTANTS: list[tuple[Mutant, Callable[[int], Plan], str]] = [
    (mutants.ack_before_keep, storm_plan, "LOST"),
    (mutants.keep_error_swallowed, storm_plan, "LOST"),
    (mutants.random_letter_ids, storm_plan, "DOUBLE LETTER"),
    (mutants.attempts_in_memory, poison_plan, "STUCK"),
    (mutants.no_fencing, storm_plan, "UNFENCED"),
    (mutants.no_renewal, calm_plan, "UNEXPLAINED RUN"),
    (mutants.brake_burns_attempts, outage_plan, "FLOOD"),
    (mutants.innocents_charged, poison_plan, "CHARGED INNOCENT"),
    (mutants.suspects_in_company, poison_plan, "IN COMPANY"),
    (mutants.acks_what_it_hands_back, storm_plan, "LOST"),
    (mutants.no_time_limit, calm_plan, "STUCK"),
    (mutants.late_letters_left_open, frozen_plan, "TWO FATES"),
    (mutants.letters_left_open, storm_plan, "TWO FATES"),
    (mutants.body_decoded_on_the_way, calm_plan, "MANGLED"),
    (mutants.overtaken_original_waits, storm_plan, "STUCK"),
    (mutants.replays_never_confirmed, storm_plan, "UNCONFIRMED"),
    (mutants.letter_of_another_message, calm_plan, "GHOST"),
    (mutants.wrong_reason, calm_plan, "MISJUDGED"),
    (mutants.counts_twice, calm_plan, "LIE"),
    (mutants.dies_of_a_full_batch, calm_plan, "CRASH"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "plan_of", "name"), MUTANTS, ids=[m[0].__name__ for m in MUTANTS]
)
def test_a_planted_defect_is_found(
    plant: Mutant, plan_of: Callable[[int], Plan], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    assert any(name in broken(plan_of(seed)) for seed in range(MOST_SEEDS))
