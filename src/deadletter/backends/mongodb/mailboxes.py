"""No mailboxes: this engine keeps letters and keys, and says so when asked for more."""

from collections.abc import Sequence
from typing import NoReturn

from deadletter.core.errors import ConfigError
from deadletter.ports.broker import QueueInfo, QueueOptions, Sink, Source, Swept
from deadletter.ports.features import Features


class NoMailboxes:
    """A broker without mailboxes."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def source(self, mailbox: str) -> Source:
        """There is none."""
        _refuse()

    def sink(self, mailbox: str) -> Sink:
        """There is none."""
        _refuse()

    async def create(self, options: QueueOptions) -> None:
        """It cannot be made."""
        _refuse()

    async def update(self, options: QueueOptions) -> None:
        """There is none to change."""
        _refuse()

    async def delete(self, name: str, *, force: bool = False) -> int:
        """There is none to delete."""
        _refuse()

    async def queues(self) -> Sequence[QueueInfo]:
        """None, so that whoever only wants to know is told."""
        return []

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """None: mailboxes here have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Nobody can have lost anything here."""
        _refuse()


def _refuse() -> NoReturn:
    raise ConfigError(
        "mongodb keeps letters and keys, not messages: name it as the office, as in"
        ' App("redis://…", office="mongodb://…")'
    )
