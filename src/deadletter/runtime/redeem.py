"""
Letters of messages that were handled after all.

A worker may die, or freeze, between keeping a letter and forgetting its message.
The message is delivered again, and may work this time: then the letter has nobody
left to wait for, and is closed. One message, one fate.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from deadletter.core.attempts import last_number
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import OPEN, By, State
from deadletter.core.message import Delivery
from deadletter.ports import LetterStore, Move

BY: Final = By("worker", "its message was delivered again and handled")


def may_have_letter(delivery: Delivery) -> bool:
    """Whether a letter may wait for it: it is a copy, or a worker died over it."""
    if delivery.message.lineage is not None:
        return True
    return last_number(delivery.history) < delivery.attempt - 1


async def redeem(letters: LetterStore, handled: Sequence[Delivery]) -> None:
    """Close the letters of these deliveries, where there are any."""
    by_id = {key: delivery.message for delivery in handled for key in _ids(delivery)}
    found = await letters.get(list(by_id)) if by_id else ()
    needless = tuple(
        letter.id
        for letter in found
        if letter.head.state in OPEN
        and letter.head.replays == by_id[letter.id].generation
        and by_id[letter.id].body in (letter.message.body, letter.as_it_died.body)
    )
    if needless:
        await letters.move(Move(ids=needless, old=OPEN, new=State.CLOSED), BY)


def _ids(delivery: Delivery) -> Iterator[str]:
    """Under which its letter may have been kept; the last if its id was reused."""
    message, place = delivery.message, (delivery.mailbox, delivery.partition)
    if message.lineage is not None:
        yield message.lineage.letter_id
    yield letter_id(*place, message.id)
    yield letter_id(*place, message.id, body_digest(message.body))
