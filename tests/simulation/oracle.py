"""
What counts as a violation, checked when a simulated world has come to rest.

    LOST              sent, and neither handled nor a letter nor still there
    STUCK             still there although everything is well again
    DOUBLE LETTER     two letters for one message
    TWO FATES         the ledger says handled, and a letter waits for somebody
    UNCONFIRMED       a replay whose outcome nobody knows
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
from collections.abc import Iterator
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.failure import Reason
from deadletter.core.letter import OPEN
from deadletter.ports import LedgerState
from simulation.evidence import Evidence, left_in
from simulation.oracle_runs import charged_innocent, flood, in_company, unexplained_run, unfenced
from simulation.violation import Check, Violation, told, with_parcels
from simulation.workload import Kind


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
    for letter, parcel in with_parcels(evidence):
        if parcel.copies > 1:  # two messages to the broker: one may fare better
            continue
        if not evidence.plan.together and parcel.id in evidence.left_behind:
            continue
        identity = (letter.message.id, letter.head.replays)
        state = evidence.ledger.get(identity)
        if state is LedgerState.PROCESSED and letter.head.state in OPEN:
            yield Violation("TWO FATES", f"{identity} is handled and {told(letter)}")


def unconfirmed(evidence: Evidence) -> Iterator[Violation]:
    """A replayed copy is gone, and its campaign does not know what became of it."""
    if evidence.residue:
        return
    for campaign in evidence.campaigns:
        open_ended = {Outcome.PLANNED, Outcome.SENDING, Outcome.SENT}
        if any(campaign.counts.get(outcome) for outcome in open_ended):
            yield Violation("UNCONFIRMED", f"{campaign.id}: {campaign.counts}")


def ghost(evidence: Evidence) -> Iterator[Violation]:
    """A letter or a run for a message nobody sent."""
    for stranger in evidence.effects.strangers:
        yield Violation("GHOST", f"a handler ran for {stranger}")
    for letter in evidence.letters:
        if letter.message.id not in evidence.effects.parcels:
            yield Violation("GHOST", told(letter))


def mangled(evidence: Evidence) -> Iterator[Violation]:
    """Body or headers are not what was sent."""
    for message_id in evidence.effects.mangled:
        yield Violation("MANGLED", f"{message_id}, as it was delivered")
    for letter in evidence.letters:
        parcel = evidence.effects.parcels.get(letter.message.id)
        message = letter.message
        if parcel is not None and (message.body, message.headers) != (parcel.body, parcel.headers):
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
    for letter, parcel in with_parcels(evidence):
        if letter.head.reason not in _REASONS[parcel.kind]:
            yield Violation("MISJUDGED", f"{parcel.kind} {told(letter)}")


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
    *(lost, stuck, double_letter, two_fates, unconfirmed, ghost, mangled, misjudged),
    *(unexplained_run, in_company, charged_innocent, unfenced, flood, lie, crash),
)
