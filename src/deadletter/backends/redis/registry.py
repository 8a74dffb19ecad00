"""
The list of mailboxes and their options.

It lives apart from them, maybe on another node of a cluster. So a mailbox is put on
the list before it takes messages, and taken off only after it has stopped to: there
is never a message in one that is not listed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from deadletter.ports.broker import QueueOptions

from .keys import Keys
from .link import Link
from .packing import seconds
from .scripts import ADOPT, PURGE, REGISTRY

_LEAVING: Final = b"-"
_CENTURY: Final = 36_525 * 86_400.0  # seconds; no expiry is further away

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(QueueOptions).decode

Listed: TypeAlias = Mapping[str, QueueOptions]
Change: TypeAlias = Callable[[Listed], Listed]
"""What to write, given what is there; raises to refuse"""


class Registry:
    """All mailboxes behind one prefix."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self.keys = keys
        self._link = link

    async def read(self) -> Listed:
        """Options by name."""
        _, listed = await self._read()
        return listed

    async def join(self, name: str) -> None:
        """Have a mailbox take messages, on the list if it is not there yet."""
        usual = _encode(QueueOptions(name=name))
        version, options = await self._registry("join", name, usual)
        await self._adopt(_decode(options), int(version))

    async def change(self, change: Change) -> None:
        """Change options, if nobody else has changed any since they were looked at."""
        await self._change(change, leaving=None)

    async def leave(self, name: str, change: Change) -> int:
        """Delete a mailbox, and change others with it; how many messages it had."""
        await self._change(change, leaving=name)
        purged = await self._link.timed(PURGE, self.keys.mailbox(name))
        await self._registry("leave", name)
        return int(purged)

    async def _change(self, change: Change, *, leaving: str | None) -> None:
        version, said = b"", 0
        changed: Listed = {}
        while not said:
            version, listed = await self._read()
            changed = change(listed)
            pairs: list[str | bytes] = []
            for name, options in changed.items():
                mark = _LEAVING if name == leaving else b""
                pairs += name, mark + _encode(options)
            said = await self._registry("change", version, *pairs)
        for name, options in changed.items():
            if name != leaving:
                await self._adopt(options, said)

    async def _adopt(self, options: QueueOptions, version: int) -> None:
        expiry = options.expire_after
        life = "" if expiry is None else seconds(min(expiry, _CENTURY))
        keys = self.keys.mailbox(options.name)
        await self._link.timed(ADOPT, keys, version, life)

    async def _read(self) -> tuple[bytes, Listed]:
        said = await self._registry("read")
        listed = dict(zip(said[::2], said[1::2], strict=True))
        version = listed.pop(b"", b"0")
        return version, {
            name.decode(): _decode(options.removeprefix(_LEAVING))
            for name, options in listed.items()
        }

    async def _registry(self, *args: str | bytes) -> Any:
        return await self._link.run(REGISTRY, [self.keys.registry], *args)
