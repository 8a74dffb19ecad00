"""One letter's whole story: every moment of it, in order."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.letter import AuditEntry, By, DeadLetter
from deadletter.ports import LetterStore

MOST_ACTS: Final = 500


class Kind(StrEnum):
    """What sort of moment it was."""

    SENT = "sent"
    RECEIVED = "received"
    ATTEMPT = "attempt"
    DIED = "died"
    ACT = "act"  # what a person or a program did with the letter


class Moment(Struct, frozen=True, kw_only=True):
    """One moment in the life of a letter."""

    at: datetime
    kind: Kind
    text: str = ""
    attempt: Attempt | None = None
    act: AuditEntry | None = None


class Story(Struct, frozen=True, kw_only=True):
    """A letter and everything that happened to it, first to last."""

    letter: DeadLetter
    moments: tuple[Moment, ...]
    left_out: bool = False  # there are more acts than are told here


async def tell(store: LetterStore, letter: DeadLetter) -> Story:
    """Everything that is known about a letter."""
    acts = await _acts(store, letter.id)
    moments = [*_life(letter), *(_act(entry) for entry in acts[:MOST_ACTS])]
    # Stable: what is recorded for the same instant stays in the order of telling.
    moments.sort(key=lambda moment: moment.at)
    return Story(letter=letter, moments=tuple(moments), left_out=len(acts) > MOST_ACTS)


async def reveal(store: LetterStore, letter: DeadLetter, by: By) -> None:
    """Record that somebody is shown what is masked otherwise."""
    await store.record("reveal", letter.id, by, "shown unmasked")


def _life(letter: DeadLetter) -> list[Moment]:
    head, message = letter.head, letter.message
    moments = [Moment(at=message.sent_at, kind=Kind.SENT, text=head.source)]
    if letter.first_received_at is not None:
        moments.append(
            Moment(at=letter.first_received_at, kind=Kind.RECEIVED, text=head.consumer)
        )
    moments += (
        Moment(at=attempt.at, kind=Kind.ATTEMPT, text=attempt.text, attempt=attempt)
        for attempt in letter.story()
    )
    text = head.reason_text or head.reason
    moments.append(Moment(at=head.dead_at, kind=Kind.DIED, text=text))
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
