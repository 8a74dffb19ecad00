"""A death repeated: what tests that `dlq repro` has written are made of."""

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
    Hand the message in a file to the handler it died in; what it answers.

    It is called once, here and now. What it raises is raised.
    """
    mailbox, message = read(file.read_bytes())
    return asyncio.run(app.handle(mailbox, message))
