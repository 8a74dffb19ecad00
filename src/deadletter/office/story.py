"""One letter's whole story: every moment of it, in order."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.letter import AuditEntry, By, DeadLetter
from deadletter.core.replay_rules import OUT, is_out
from deadletter.intake.dialects import origin_of
from deadletter.ports import LetterStore

from .preflight import target_of

MOST_ACTS: Final = 500


class Kind(StrEnum):
    """What sort of moment it was."""

    SENT = "sent"
    RECEIVED = "received"
    ATTEMPT = "attempt"
    DIED = "died"
    ACT = "act"  # what a person or a program did with the letter
    REPLAY = "replay"  # a campaign took it
    OUTCOME = "outcome"  # ...and this is what became of that


class Moment(Struct, frozen=True, kw_only=True):
    """One moment in the life of a letter."""

    at: datetime
    kind: Kind
    text: str = ""
    attempt: Attempt | None = None
    act: AuditEntry | None = None
    replay: ReplayItem | None = None
    given_up: bool = False  # somebody stopped waiting for the outcome of this replay


class Story(Struct, frozen=True, kw_only=True):
    """A letter and everything that happened to it, first to last."""

    letter: DeadLetter
    moments: tuple[Moment, ...]
    left_out: bool = False  # there are more acts than are told here


async def tell(store: LetterStore, letter: DeadLetter) -> Story:
    """Everything that is known about a letter."""
    acts = await _acts(store, letter.id)
    replays = await store.replays([letter.id])
    moments = [
        *_life(letter),
        *(moment for item in replays for moment in _replay(letter, item)),
        *(_act(entry) for entry in acts[:MOST_ACTS]),
    ]
    # Stable: what is recorded for the same instant stays in the order of telling.
    moments.sort(key=lambda moment: moment.at)
    return Story(letter=letter, moments=tuple(moments), left_out=len(acts) > MOST_ACTS)


def earlier_deaths(letter: DeadLetter) -> list[datetime]:
    """When a letter died before its latest death, as far as its story is kept."""
    return [m.at for m in _life(letter) if m.kind is Kind.DIED][:-1]


async def reveal(store: LetterStore, letter: DeadLetter, by: By) -> None:
    """Record that somebody is shown what is masked otherwise."""
    await store.record("reveal", letter.id, by, "shown unmasked")


def _life(letter: DeadLetter) -> list[Moment]:
    head, message = letter.head, letter.message
    moments: list[Moment] = []
    # Of a drained message nobody may know when it was sent: only when it was found.
    if origin_of(message) is None or message.sent_at <= head.dead_at:
        moments.append(Moment(at=message.sent_at, kind=Kind.SENT, text=head.source))
    if letter.first_received_at is not None:
        moments.append(Moment(at=letter.first_received_at, kind=Kind.RECEIVED, text=head.consumer))
    attempts = letter.story()
    last = {one.generation: one for one in attempts if one.outcome != "cut"}
    for attempt in attempts:
        moments.append(Moment(at=attempt.at, kind=Kind.ATTEMPT, text=attempt.text, attempt=attempt))
        # It was replayed afterwards, so it had died of this one.
        if attempt is last.get(attempt.generation) and attempt.generation < max(last):
            moments.append(Moment(at=attempt.at, kind=Kind.DIED))
    text = head.reason_text or head.reason
    moments.append(Moment(at=head.dead_at, kind=Kind.DIED, text=text))
    return moments


def _replay(letter: DeadLetter, item: ReplayItem) -> list[Moment]:
    """When a campaign took the letter, and what became of that, as far as known."""
    moments: list[Moment] = []
    if item.taken_at is not None:  # and not when sent: its consumer may be faster
        head = letter.head
        waiting = is_out(head.state, head.replays, item.generation)
        moments.append(
            Moment(
                at=item.taken_at,
                kind=Kind.REPLAY,
                text=target_of(head, item.to),
                replay=item,
                given_up=item.outcome in OUT | {Outcome.UNCONFIRMED} and not waiting,
            )
        )
    outcomes = ((item.confirmed_at, Outcome.CONFIRMED), (item.settled_at, item.outcome))
    moments += (
        Moment(at=at, kind=Kind.OUTCOME, text=outcome, replay=item)
        for at, outcome in outcomes
        if at is not None and outcome is not Outcome.UNCONFIRMED
    )
    return moments


def _act(entry: AuditEntry) -> Moment:
    return Moment(at=entry.at, kind=Kind.ACT, text=entry.detail, act=entry)


async def _acts(store: LetterStore, letter_id: str) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    after = 0
    while len(entries) <= MOST_ACTS:
        page = await store.audit(target=letter_id, after=after, limit=200)
        entries += page
        if len(page) < 200:
            break
        after = page[-1].seq
    return entries
