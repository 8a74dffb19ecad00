"""Helper of tests that `dlq repro` writes: it repeats a death."""

import asyncio
from pathlib import Path
from typing import Protocol

from deadletter.core.message import Message
from deadletter.core.packing import read


class Handles(Protocol):
    """An App, as far as it matters here."""

    async def handle(self, mailbox: str, message: Message) -> object:
        """Hand a message to the handler of a mailbox."""


def handle(app: Handles, file: Path) -> object:
    """
    Run the handler that a message died in with the message of a file; return its result.

    The handler runs once, and its errors are raised.
    """
    mailbox, message = read(file.read_bytes())
    return asyncio.run(app.handle(mailbox, message))
