"""
Letters of messages that a broker moved into a dead-letter mailbox by itself.

Such a message carries no letter. The worker has kept one if it saw the last attempt fail.
If its process died first, or the worker was not ours, the letter is kept here, before the
message is handled: under the same identity, so that there is one letter either way.
"""

from msgspec import structs

from deadletter.core.burial import broker_burial, failure_of_move
from deadletter.core.events import Buried, Observer
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Delivery
from deadletter.intake.dialects import fenced
from deadletter.ports import Clock, Kept, LetterStore

from .availability import Availability
from .outcomes import as_kept


class MovedLetters:
    """Finds or keeps the letters of moved messages."""

    def __init__(
        self, letters: LetterStore, availability: Availability, clock: Clock, observe: Observer
    ) -> None:
        self._letters = letters
        self._availability = availability
        self._clock = clock
        self._observe = observe

    async def letter_of(self, delivery: Delivery) -> DeadLetter:
        """Return the letter of a moved message, from the office; keep it if it is missing."""
        found = await self._availability.retry_until_available(
            "office", lambda: self._letters.get(_ids(delivery))
        )
        for letter in found:
            if _is_kept(letter, delivery):
                return letter
        letter = broker_burial(delivery, self._clock.now())
        letter = structs.replace(letter, message=fenced(letter.message))
        (kept,) = await self._availability.retry_until_available(
            "office", lambda: self._letters.keep([letter])
        )
        self._report(delivery, letter, kept)
        stored = await self._availability.retry_until_available(
            "office", lambda: self._letters.get([kept.id])
        )
        return stored[0] if stored else as_kept(letter, kept)

    def _report(self, delivery: Delivery, letter: DeadLetter, kept: Kept) -> None:
        head = letter.head
        self._observe(
            Buried(
                mailbox=head.source,
                message_id=head.message_id,
                letter_id=kept.id,
                attempt=head.attempts,
                reason=head.reason,
                text=head.reason_text,
                failure=failure_of_move(delivery),
                is_new=kept.is_new,
                conflict=kept.conflict,
                request_id=head.business_key,
            )
        )


def _ids(delivery: Delivery) -> list[str]:
    """Return the ids under which the letter may have been kept."""
    message, move = delivery.message, delivery.moved
    assert move is not None
    place = (move.source, delivery.partition, message.id)
    ids = [letter_id(*place), letter_id(*place, body_digest(message.body))]
    return ids if message.lineage is None else [message.lineage.letter_id, *ids]


def _is_kept(letter: DeadLetter, delivery: Delivery) -> bool:
    """Return whether this death is known: by a worker, or from an earlier delivery."""
    message, head = delivery.message, letter.head
    if message.body not in (letter.message.body, letter.as_it_died.body):
        return False  # its id was reused with another body
    if head.replays != message.generation:
        return head.replays > message.generation
    return head.state is not State.REPLAYING
