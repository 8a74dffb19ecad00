"""Burying where mailboxes and office are one engine."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery

from .letters import Kept


class Burial(Struct, frozen=True):
    """A delivery that is given up, and the letter that tells its story."""

    delivery: Delivery
    letter: DeadLetter


class Undertaker(Protocol):
    """
    Keeps letters only of what is still ours.

    An engine has one when its claims and its letters can be looked at and written
    in one transaction. Elsewhere the two are asked one after the other, and a
    worker that is frozen between them may keep the letter of a message that
    somebody else has handled by then.
    """

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """
        Keep the letters of deliveries that are still ours, in one transaction.

        None for a delivery that is somebody else's by now: nothing is kept of it.
        The deliveries themselves stay as they are, to be settled afterwards. All
        are of one mailbox.
        """
