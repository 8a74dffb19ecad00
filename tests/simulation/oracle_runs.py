"""What counts as a violation in how handlers were run."""

from collections.abc import Iterator

from deadletter.core.failure import Reason
from simulation.evidence import Evidence
from simulation.violation import Violation, told, with_parcels
from simulation.workload import MAX_ATTEMPTS, Kind, Parcel, Run


def unexplained_run(evidence: Evidence) -> Iterator[Violation]:
    """A handler ran more, or less, often than its policy asks for."""
    plan, effects = evidence.plan, evidence.effects
    if not evidence.is_calm or plan.has(Kind.POISON, Kind.HOG) or plan.downstream_down:
        return
    for parcel in plan.parcels:
        if parcel.kind is Kind.FLEETING:  # a race with the clock
            continue
        runs = len(effects.of(parcel.id))
        if runs != asked_for(parcel):
            yield Violation(
                "UNEXPLAINED RUN",
                f"{parcel.kind} {parcel.id} ran {runs} times, not {asked_for(parcel)}",
            )


def asked_for(parcel: Parcel) -> int:
    """How often a handler runs when nothing else goes wrong."""
    match parcel.kind:
        case Kind.OK | Kind.SLOW | Kind.BAD | Kind.MOODY | Kind.HOG | Kind.NEEDY:
            return 1
        case Kind.FLAKY:
            return min(parcel.times + 1, MAX_ATTEMPTS)
        case _:
            return MAX_ATTEMPTS


def in_company(evidence: Evidence) -> Iterator[Violation]:
    """A suspect ran beside somebody else in its process."""
    runs = sorted(evidence.effects.runs, key=lambda run: run.began)
    latest: dict[str, list[Run]] = {}
    for run in runs:
        beside = latest.setdefault(run.process, [])
        beside[:] = [one for one in beside if one.ended is None or one.ended > run.began]
        for one in beside:
            if one.suspect or run.suspect:
                yield Violation(
                    "IN COMPANY",
                    f"{one.id} and {run.id} ran together in {run.process} at "
                    f"{run.began:.3f} s, and one of them is a suspect",
                )
        beside.append(run)


def charged_innocent(evidence: Evidence) -> Iterator[Violation]:
    """Charged, or even buried, because a neighbour killed the process."""
    if not evidence.is_calm or evidence.plan.has(Kind.HOG):
        return
    for letter, parcel in with_parcels(evidence):
        lost_worker = letter.head.reason is Reason.WORKER_LOST
        if lost_worker and parcel.kind is not Kind.POISON:
            yield Violation("CHARGED INNOCENT", f"{parcel.kind} {told(letter)}")
    if evidence.hits:  # a reply that is lost may cost an attempt
        return
    for run in evidence.effects.runs:
        kind = evidence.effects.parcels[run.id].kind
        if kind in (Kind.OK, Kind.SLOW) and run.charged > 1:
            text = f"{kind} {run.id} pays for {run.charged - 1} attempts of others"
            yield Violation("CHARGED INNOCENT", text)


def unfenced(evidence: Evidence) -> Iterator[Violation]:
    """Somebody whose lease was gone could still settle."""
    if all(parcel.copies == 1 for parcel in evidence.plan.parcels):
        for text in evidence.unfenced:
            yield Violation("UNFENCED", text)


def flood(evidence: Evidence) -> Iterator[Violation]:
    """Buried because the downstream was down."""
    if not evidence.is_calm or evidence.plan.has(Kind.POISON, Kind.HOG):
        return
    for letter, parcel in with_parcels(evidence):
        if parcel.kind is Kind.NEEDY:
            yield Violation("FLOOD", told(letter))
