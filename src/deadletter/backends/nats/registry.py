"""
The list of mailboxes and their options.

One entry, changed by compare-and-set: what is checked against all mailboxes is true
of all mailboxes, however many processes change them at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from deadletter.nats_login import OURS
from deadletter.ports.broker import QueueOptions
from deadletter.ports.time import Clock

from .errors import NAME_IN_USE, WRONG_SEQUENCE, Declined
from .link import Link, Sending
from .names import Names

_FRESH: Final = 1.0  # seconds in which options are not looked up again

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, QueueOptions]).decode

Listed: TypeAlias = Mapping[str, QueueOptions]
Change: TypeAlias = Callable[[Listed], Listed]
"""The list as it shall be, given the list there is; raises to refuse"""


class Registry:
    """All mailboxes behind one prefix."""

    def __init__(
        self, link: Link, names: Names, *, replicas: int, clock: Clock
    ) -> None:
        self._link = link
        self._names = names
        self._replicas = replicas
        self._clock = clock
        self._known: Listed = {}
        self._looked = -_FRESH

    async def make_book(self) -> None:
        """Make the stream that all our notes are in."""
        config: dict[str, Any] = {
            "name": self._names.book,
            "description": f"{OURS}the list of mailboxes, and notes on messages",
            "subjects": [f"{self._names.book}.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "num_replicas": self._replicas,
            "allow_direct": True,
        }
        try:
            await self._link.ask(f"STREAM.CREATE.{self._names.book}", config)
        except Declined as error:
            if error.code != NAME_IN_USE:  # there already, edited by somebody
                raise

    async def read(self) -> Listed:
        """Options by name."""
        _, listed = await self._read()
        return listed

    async def options(self, name: str) -> QueueOptions:
        """One mailbox's options, as they were a moment ago."""
        if self._clock.monotonic() - self._looked >= _FRESH:
            await self._read()
        return self._known.get(name) or QueueOptions(name=name)

    async def join(self, name: str) -> None:
        """Put a mailbox on the list, if it is not there yet."""
        if name not in (await self.read()):
            await self.change(lambda old: {name: QueueOptions(name=name), **old})

    async def change(self, change: Change) -> None:
        """Change the list, if nobody else has changed it since it was looked at."""
        while True:
            version, listed = await self._read()
            changed = change(listed)
            if changed == listed:
                return
            expected = {"Nats-Expected-Last-Subject-Sequence": str(version)}
            entry = Sending(self._names.registry, _encode(changed), expected)
            try:
                await self._link.ask_all([entry])
            except Declined as error:
                if error.code != WRONG_SEQUENCE:
                    raise
            else:
                self._looked = -_FRESH
                return

    async def _read(self) -> tuple[int, Listed]:
        (found,) = await self._link.latest(self._names.book, [self._names.registry])
        version, content = found or (0, b"{}")
        self._known = _decode(content)
        self._looked = self._clock.monotonic()
        return version, self._known
