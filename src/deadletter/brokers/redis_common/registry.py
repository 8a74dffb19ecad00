"""The list of mailboxes and their options on a server."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from deadletter.ports.broker import QueueOptions

from .script_runner import ScriptRunner
from .scripts import Script

Listed: TypeAlias = Mapping[str, QueueOptions]
Change: TypeAlias = Callable[[Listed], Listed]
"""Returns the options to write, given those that exist; raises to refuse"""

encoded: Final = msgspec.json.Encoder().encode
decoded: Final = msgspec.json.Decoder(QueueOptions).decode


class MailboxRegistry(ABC):
    """All mailboxes with one prefix. In the hash, the field with an empty name is its version."""

    script: ClassVar[Script]  # reads and changes the list

    def __init__(self, runner: ScriptRunner, key: str) -> None:
        self._runner = runner
        self._key = key

    async def read(self) -> Listed:
        """Return options by the name of their mailbox."""
        _, listed = await self._read()
        return listed

    @abstractmethod
    async def join(self, name: str) -> None:
        """Make a mailbox accept messages; add it to the list if it is missing."""

    @abstractmethod
    async def change(self, change: Change) -> None:
        """Change options; start over if they were changed meanwhile."""

    @abstractmethod
    async def leave(self, name: str, change: Change) -> int:
        """Delete a mailbox and change others with it; return how many messages it had."""

    def _options(self, stored: bytes) -> QueueOptions:
        return decoded(stored)

    async def _read(self) -> tuple[bytes, Listed]:
        said = await self._ask("read")
        listed = dict(zip(said[::2], said[1::2], strict=True))
        version = listed.pop(b"", b"0")
        return version, {name.decode(): self._options(options) for name, options in listed.items()}

    async def _ask(self, *args: str | bytes) -> Any:
        return await self._runner.run(self.script, [self._key], *args)
