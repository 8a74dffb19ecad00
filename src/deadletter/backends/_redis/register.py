"""The list of mailboxes and their options, whose engine says how it changes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from deadletter.ports.broker import QueueOptions

from .link import Link
from .scripts import Script

Listed: TypeAlias = Mapping[str, QueueOptions]
Change: TypeAlias = Callable[[Listed], Listed]
"""What to write, given what is there; raises to refuse"""

encoded: Final = msgspec.json.Encoder().encode
decoded: Final = msgspec.json.Decoder(QueueOptions).decode


class Register(ABC):
    """All mailboxes behind one prefix; the field without a name is its version."""

    script: ClassVar[Script]  # that reads and changes it

    def __init__(self, link: Link, key: str) -> None:
        self._link = link
        self._key = key

    async def read(self) -> Listed:
        """Options by name."""
        _, listed = await self._read()
        return listed

    @abstractmethod
    async def join(self, name: str) -> None:
        """Have a mailbox take messages, on the list if it is not there yet."""

    @abstractmethod
    async def change(self, change: Change) -> None:
        """Change options, if nobody else has changed any since they were looked at."""

    @abstractmethod
    async def leave(self, name: str, change: Change) -> int:
        """Delete a mailbox, and change others with it; how many messages it had."""

    def _options(self, stored: bytes) -> QueueOptions:
        return decoded(stored)

    async def _read(self) -> tuple[bytes, Listed]:
        said = await self._ask("read")
        listed = dict(zip(said[::2], said[1::2], strict=True))
        version = listed.pop(b"", b"0")
        return version, {
            name.decode(): self._options(options) for name, options in listed.items()
        }

    async def _ask(self, *args: str | bytes) -> Any:
        return await self._link.run(self.script, [self._key], *args)
