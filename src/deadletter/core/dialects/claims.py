"""
Which mailbox a message in a dead place belongs to.

Whoever can send to a dead queue can write every header that a broker or framework
would write there. A mailbox that only headers name is therefore a claim. It counts if
whoever drains allows it, if the dead queue is named after it, or if a signature of
ours proves it. What else claims to belong somewhere belongs to the place where it was
found.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

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


def _words(name: str) -> Sequence[str]:
    return [word for word in _WORDS.findall(name.lower()) if word not in _DEAD]
