"""Scripts that the server runs, and the names of keys."""

import re
from typing import Final

from deadletter.brokers.redis_common.script_runner import Script, Verbs, read
from deadletter.core.errors import ConfigError


def _read(*names: str) -> Script:
    return read(__package__, *names)


def _of_mailbox(name: str) -> Script:
    return _read("clock", "mailbox", "rows", name)


VERBS: Final = Verbs(
    send=_read("clock", "mailbox", "send"),
    receive=_of_mailbox("receive"),
    undo=_of_mailbox("undo"),
    settle=_of_mailbox("settle"),
    extend=_of_mailbox("extend"),
    sweep=_of_mailbox("sweep"),
    count=_read("clock", "mailbox", "info"),
)
ADOPT: Final = _read("clock", "mailbox", "adopt")
PURGE: Final = _read("clock", "mailbox", "purge")
REGISTRY: Final = _read("registry")
LEDGER_BEGIN: Final = _read("clock", "ledger_begin")
LEDGER_FINISH: Final = _read("clock", "ledger_finish")
LEDGER_FORGET: Final = _read("clock", "ledger_forget")
LEDGER_DROP: Final = _read("clock", "ledger_drop")
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
WAKE: Final = _OF_A_MAILBOX.index("bell")
WAKE_ALONE: Final = _OF_A_MAILBOX.index("bell-alone")


class Keys:
    """Names of keys with a prefix."""

    def __init__(self, prefix: str = "dlq") -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(
                f"prefix must be 1 to 64 letters, digits or _.:- characters, got {prefix!a}:"
                " choose another one"
            )
        self.registry = f"{prefix}:mailboxes"
        self.ledgers = f"{prefix}:ledgers"
        self._prefix = prefix

    def mailbox(self, name: str) -> tuple[str, ...]:
        """Return all keys of a mailbox."""
        return tuple(f"{self._prefix}:{_tag(name)}:{part}" for part in _OF_A_MAILBOX)

    def ledger(self, mailbox: str) -> tuple[str, str]:
        """Return the keys of a mailbox's ledger: its entries, and when they expire."""
        start = f"{self._prefix}:{_tag(mailbox)}:ledger"
        return start, f"{start}-over"


def _tag(name: str) -> str:
    # An empty tag would not count as one, and a brace in it would end it early.
    return "{" + (name.translate(_ESCAPES) or "%") + "}"
