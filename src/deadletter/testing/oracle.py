"""
What counts as a violation, checked when a simulated world has come to rest.

    LOST              sent, and neither handled nor a letter nor still there
    STUCK             still there although everything is well again
    DOUBLE LETTER     two letters for one message
    TWO FATES         the ledger says handled, and a letter waits for somebody
    GHOST             a letter or a run for a message nobody sent
    MANGLED           body or headers are not what was sent
    MISJUDGED         a letter for a reason its message did not give
    UNEXPLAINED RUN   a handler ran more often than its policy asks for
    IN COMPANY        a suspect ran beside somebody else in its process
    CHARGED INNOCENT  buried because a neighbour killed the process
    UNFENCED          settled by somebody whose lease was gone
    FLOOD             buried because the downstream was down
    LIE               the office, or the mailbox's tally, contradicts what happened
    CRASH             an error came out of the runtime, or it would not stop

Running a handler again after a crash is at-least-once, and no violation.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.decision import Reason
from deadletter.core.letter import OPEN, DeadLetter
from deadletter.ports import LedgerState

from .evidence import Evidence, left_in
from .workload import MAX_ATTEMPTS, Kind, Parcel, Run


class Violation(Struct, frozen=True):
    """A promise that was broken."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


Check: TypeAlias = Callable[[Evidence], Iterator[Violation]]


def judge(evidence: Evidence, *more: Check) -> list[Violation]:
    """Every promise that was broken."""
    return [broken for check in (*CHECKS, *more) for broken in check(evidence)]


def lost(evidence: Evidence) -> Iterator[Violation]:
    """Sent, and neither handled nor a letter nor still there."""
    done = {run.id for run in evidence.effects.runs if run.how == "done"}
    kept = {letter.message.id for letter in evidence.letters}
    missing = sorted(set(evidence.sent) - done - kept)
    if len(missing) > evidence.residue:
        yield Violation("LOST", f"{', '.join(missing)}")


def stuck(evidence: Evidence) -> Iterator[Violation]:
    """Still there although everything is well again."""
    for queue in filter(left_in, evidence.queues):
        yield Violation(
            "STUCK",
            f"{queue.ready} ready, {queue.delayed} delayed, {queue.claimed} claimed, "
            f"{queue.suspects} suspects in {queue.options.name}",
        )


def double_letter(evidence: Evidence) -> Iterator[Violation]:
    """Two letters for one message."""
    heads = [letter.head for letter in evidence.letters]
    for what in (
        Counter((head.source, head.partition, head.message_id) for head in heads),
        Counter((head.id,) for head in heads),
    ):
        for identity, count in what.items():
            if count > 1:
                yield Violation("DOUBLE LETTER", f"{count} letters of {identity}")


def two_fates(evidence: Evidence) -> Iterator[Violation]:
    """The ledger says handled, and a letter of that generation waits for somebody."""
    if not evidence.plan.idempotent:
        return
    for letter, parcel in _parcelled(evidence):
        if parcel.copies > 1:  # two messages to the broker: one may fare better
            continue
        identity = (letter.message.id, letter.head.replays)
        state = evidence.ledger.get(identity)
        if state is LedgerState.PROCESSED and letter.head.state in OPEN:
            yield Violation("TWO FATES", f"{identity} is handled and {_told(letter)}")


def ghost(evidence: Evidence) -> Iterator[Violation]:
    """A letter or a run for a message nobody sent."""
    for stranger in evidence.effects.strangers:
        yield Violation("GHOST", f"a handler ran for {stranger}")
    for letter in evidence.letters:
        if letter.message.id not in evidence.effects.parcels:
            yield Violation("GHOST", _told(letter))


def mangled(evidence: Evidence) -> Iterator[Violation]:
    """Body or headers are not what was sent."""
    for message_id in evidence.effects.mangled:
        yield Violation("MANGLED", f"{message_id}, as it was delivered")
    for letter in evidence.letters:
        parcel = evidence.effects.parcels.get(letter.message.id)
        message = letter.message
        if parcel is not None and (message.body, message.headers) != (
            parcel.body,
            parcel.headers,
        ):
            yield Violation("MANGLED", f"{message.id}, as it was kept")


_REASONS: Final = {
    Kind.OK: {Reason.WORKER_LOST},
    Kind.SLOW: {Reason.WORKER_LOST},
    Kind.HOG: {Reason.WORKER_LOST},
    Kind.POISON: {Reason.WORKER_LOST},
    Kind.FLAKY: {Reason.WORKER_LOST, Reason.ATTEMPTS_EXHAUSTED},
    Kind.NEEDY: {Reason.WORKER_LOST, Reason.ATTEMPTS_EXHAUSTED},
    Kind.HOPELESS: {Reason.WORKER_LOST, Reason.ATTEMPTS_EXHAUSTED},
    Kind.LIAR: {Reason.WORKER_LOST, Reason.ATTEMPTS_EXHAUSTED},
    Kind.BAD: {Reason.WORKER_LOST, Reason.UNDECODABLE},
    Kind.MOODY: {Reason.WORKER_LOST, Reason.UNDECODABLE},
    Kind.STUCK: {Reason.WORKER_LOST, Reason.ATTEMPTS_EXHAUSTED},
    Kind.FLEETING: {Reason.WORKER_LOST, Reason.ATTEMPTS_EXHAUSTED, Reason.EXPIRED},
}


def misjudged(evidence: Evidence) -> Iterator[Violation]:
    """A letter for a reason its message did not give."""
    for letter, parcel in _parcelled(evidence):
        if letter.head.reason not in _REASONS[parcel.kind]:
            yield Violation("MISJUDGED", f"{parcel.kind} {_told(letter)}")


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
        beside[:] = [
            one for one in beside if one.ended is None or one.ended > run.began
        ]
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
    for letter, parcel in _parcelled(evidence):
        lost_worker = letter.head.reason is Reason.WORKER_LOST
        if lost_worker and parcel.kind is not Kind.POISON:
            yield Violation("CHARGED INNOCENT", f"{parcel.kind} {_told(letter)}")
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
    for letter, parcel in _parcelled(evidence):
        if parcel.kind is Kind.NEEDY:
            yield Violation("FLOOD", _told(letter))


def lie(evidence: Evidence) -> Iterator[Violation]:
    """The office, or the mailbox's tally, contradicts what happened."""
    for complaint in evidence.complaints:
        yield Violation("LIE", complaint)
    tally = sum((Counter(queue.tally) for queue in evidence.queues), Counter[str]())
    sent = tally.pop("sent", 0)
    if sent != tally.total() + evidence.residue:
        yield Violation("LIE", f"of {sent} sent it can account for {tally}")
    replayed = any(letter.head.replays for letter in evidence.letters)
    if sent != evidence.sent.total() and not replayed:
        yield Violation("LIE", f"{evidence.sent.total()} were sent, it says {sent}")


def crash(evidence: Evidence) -> Iterator[Violation]:
    """An error came out of the runtime, or it would not stop."""
    for text in evidence.crashes:
        yield Violation("CRASH", text)
    for name in evidence.unstopped:
        yield Violation("CRASH", f"{name} did not stop when it was asked to")


CHECKS: Final[tuple[Check, ...]] = (
    *(lost, stuck, double_letter, two_fates, ghost, mangled, misjudged),
    *(unexplained_run, in_company, charged_innocent, unfenced, flood, lie, crash),
)


def _parcelled(evidence: Evidence) -> Iterator[tuple[DeadLetter, Parcel]]:
    for letter in evidence.letters:
        parcel = evidence.effects.parcels.get(letter.message.id)
        if parcel is not None:
            yield letter, parcel


def _told(letter: DeadLetter) -> str:
    head = letter.head
    return (
        f"{head.message_id} is a {head.state} letter: {head.reason} "
        f"({head.reason_text}), {head.attempts} attempts"
    )
