"""
Which mailboxes and queues are any of a caller's business.

One rule for both surfaces, /api/v1 and /v1: whoever is limited to some mailboxes
neither reaches others, nor leads anything there, nor takes away what others use. What
they may not see is answered as what is not there, and named nowhere.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from deadletter.core.access import Pass
from deadletter.core.errors import Conflict, DeadLetterError


class Connected(Protocol):
    """A mailbox or lease queue, and where what dies in it goes."""

    @property
    def name(self) -> str: ...
    @property
    def dead_queue(self) -> str | None: ...


def check_seen(
    who: Pass, mailbox: str, missing: Callable[[str], DeadLetterError]
) -> None:
    """Refuse a mailbox that somebody may not see, as one that is not there."""
    if not who.sees(mailbox):
        raise missing(mailbox)


async def check_uses(
    who: Pass,
    mailbox: str,
    there: Callable[[], Awaitable[Iterable[Connected]]],
    *,
    leads_to: str | None = None,
) -> None:
    """
    Refuse a change that touches how mailboxes of others are connected.

    That is: to delete the dead queue of one, to make it have a dead queue or an end of
    its own, or to lead dead messages (`leads_to`) where they would be led on.
    """
    if not who.sources:
        return
    for other in await there():
        if other.dead_queue == mailbox and not who.sees(other.name):
            raise Conflict(
                f"{mailbox} is the dead queue of a mailbox that is none of yours: ask"
                " somebody who sees all of them"
            )
        if other.name == leads_to and not _sees(who, other.dead_queue):
            raise Conflict(
                f"{leads_to} has a dead queue that is none of yours, and a dead queue"
                " cannot have its own: choose another one"
            )


def _sees(who: Pass, mailbox: str | None) -> bool:
    return mailbox is None or who.sees(mailbox)
