"""Which names mailboxes can have on SQS, and what their queues are called."""

from re import compile as pattern
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.topology import check_name

FIFO: Final = ".fifo"
_SUSPECTS: Final = "--suspects"
_LONGEST: Final = 80
_FIT: Final = pattern(r"[A-Za-z0-9_-]+(\.fifo)?")


class Names:
    """The names of one account's queues that are ours: those with our prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def check(self, mailbox: str) -> None:
        """Refuse a name that no queue can have."""
        check_name(mailbox)
        room = _LONGEST - len(self.prefix) - len(_SUSPECTS)
        if not _FIT.fullmatch(mailbox) or len(mailbox) > room:
            raise ConfigError(
                f"{mailbox!a} cannot be a queue on SQS: up to {room} letters, digits,"
                " - and _, and .fifo at the end of a FIFO queue"
            )
        if mailbox.endswith(_SUSPECTS):
            raise ConfigError(
                f"{mailbox!a} is where suspects wait: choose a name without {_SUSPECTS}"
            )

    def queue(self, mailbox: str) -> str:
        """The queue of a mailbox."""
        return self.prefix + mailbox

    def suspects(self, mailbox: str) -> str:
        """The queue in which the mailbox's suspects wait to be run alone."""
        return self.prefix + mailbox + _SUSPECTS

    def mailbox(self, queue: str) -> str | None:
        """The mailbox of a queue; None for what is not ours or waits for suspects."""
        if not queue.startswith(self.prefix) or queue.endswith(_SUSPECTS):
            return None
        return queue.removeprefix(self.prefix)


def is_fifo(mailbox: str) -> bool:
    """Whether it is a FIFO queue: its name says so."""
    return mailbox.endswith(FIFO)
