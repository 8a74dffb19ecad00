"""
Which mailbox a message in a dead place belongs to.

Whoever can send to a dead queue can write every header that a broker or framework
would write there. A mailbox that only headers name is therefore a claim. It counts if
whoever drains allows it, if the dead queue is named after it, or if a signature of
ours proves it. What else claims to belong somewhere belongs to the place where it was
found.
"""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from ..message import Message
from ..signing import Keys, is_lineage_signed

_WORDS: Final = re.compile(r"[^\W_]+|\$+")
# What dead queues are called beside the name of their mailbox.
_DEAD: Final = frozenset(
    {
        *("dlq", "dlt", "dlx", "dl", "dead", "deadletter", "deadletters", "letter"),
        *("letters", "deadletterqueue", "error", "errors", "failed", "failure"),
        *("failures", "poison", "skipped", "rejected", "rejects", "parking", "lot"),
        *("xq", "queue", "topic", "stream", "retry", "retries", "$"),
    }
)


class Trusted(Struct, frozen=True):
    """Mailboxes whose letters a drain takes in because headers name them."""

    patterns: tuple[str, ...] = ()  # `*` stands for any characters

    def allows(self, mailbox: str) -> bool:
        """Tell whether somebody has allowed this mailbox."""
        return any(fnmatchcase(mailbox, pattern) for pattern in self.patterns)


NOBODY: Final = Trusted()


def is_named_after(place: str, mailbox: str) -> bool:
    """
    Tell whether a dead queue is named after this mailbox: `orders-dlq`, `orders`.

    The words of both are the same, in the same order, but for such as every dead
    queue has in its name.
    """
    wanted = _words(mailbox)
    return bool(wanted) and _words(place) == wanted


def is_dead_queue_of(place: str, mailbox: str) -> bool:
    """Tell whether a place is named after this mailbox, and as its dead queue."""
    return is_named_after(place, mailbox) and _length(place) > _length(mailbox)


def is_lineage_believed(
    message: Message, place: str, keys: Keys, *, dead_queue_of: Collection[str] = ()
) -> bool:
    """
    Tell whether a message found in this place is a replayed copy that one of us made.

    It was sent there, or to a mailbox whose dead queue this place is: by the options
    of that mailbox, `dead_queue_of`, or by its name. A copy that was put anywhere else
    proves nothing.
    """
    lineage = message.lineage
    if lineage is None:
        return False
    mailbox = lineage.mailbox or place
    return is_lineage_signed(message, mailbox, keys) and (
        mailbox == place or mailbox in dead_queue_of or is_dead_queue_of(place, mailbox)
    )


def _length(name: str) -> int:
    return len(_WORDS.findall(name))


def _words(name: str) -> Sequence[str]:
    return [word for word in _WORDS.findall(name.lower()) if word not in _DEAD]
