"""What our keys are called: all of one mailbox in one cluster slot."""

import re
from typing import Final

from deadletter.core.errors import ConfigError

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_ESCAPES: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_OF_A_MAILBOX: Final = (  # in the order the scripts know them by
    "meta",
    "bodies",
    "ready",
    "expiry",
    "sends",
    "bell",
    "states",
    "stories",
    "suspects",
    "claimed",
    "bell-alone",
)
TO_SEND: Final = 6  # the first ones; every key costs a call some time
BELL: Final = _OF_A_MAILBOX.index("bell")
BELL_ALONE: Final = _OF_A_MAILBOX.index("bell-alone")


class Keys:
    """Names of keys, behind a prefix."""

    def __init__(self, prefix: str = "dlq") -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(
                f"the prefix {prefix!a} has other characters than letters, digits and"
                " _.:- or is longer than 64: choose another one"
            )
        self.registry = f"{prefix}:mailboxes"
        self.ledgers = f"{prefix}:ledgers"
        self._prefix = prefix

    def mailbox(self, name: str) -> tuple[str, ...]:
        """All keys of a mailbox."""
        return tuple(f"{self._prefix}:{_tag(name)}:{part}" for part in _OF_A_MAILBOX)

    def ledger(self, mailbox: str) -> tuple[str, str]:
        """Both keys of a mailbox's ledger: its entries, and when they are over."""
        start = f"{self._prefix}:{_tag(mailbox)}:ledger"
        return start, f"{start}-over"


def _tag(name: str) -> str:
    # An empty tag would not count as one, and a brace in it would end it early.
    return "{" + (name.translate(_ESCAPES) or "%") + "}"
