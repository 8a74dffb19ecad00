"""
The list of mailboxes and their options.

It lives apart from them, maybe on another node of a cluster. So a mailbox is put on
the list before it takes messages, and taken off only after it has stopped to: there
is never a message in one that is not listed.
"""

from typing import Final

from deadletter.backends._redis.link import Link
from deadletter.backends._redis.register import (
    Change,
    Listed,
    Register,
    decoded,
    encoded,
)
from deadletter.backends._redis.times import seconds
from deadletter.ports.broker import QueueOptions

from .keys import Keys
from .scripts import ADOPT, PURGE, REGISTRY

_LEAVING: Final = b"-"
_CENTURY: Final = 36_525 * 86_400.0  # seconds; no expiry is further away


class Registry(Register):
    """All mailboxes behind one prefix."""

    script = REGISTRY

    def __init__(self, link: Link, keys: Keys) -> None:
        super().__init__(link, keys.registry)
        self.keys = keys

    async def join(self, name: str) -> None:
        """Have a mailbox take messages, on the list if it is not there yet."""
        usual = encoded(QueueOptions(name=name))
        version, options = await self._ask("join", name, usual)
        await self._adopt(decoded(options), int(version))

    async def change(self, change: Change) -> None:
        """Change options, if nobody else has changed any since they were looked at."""
        await self._change(change, leaving=None)

    async def leave(self, name: str, change: Change) -> int:
        """Delete a mailbox, and change others with it; how many messages it had."""
        await self._change(change, leaving=name)
        purged = await self._link.timed(PURGE, self.keys.mailbox(name))
        await self._ask("leave", name)
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
                pairs += name, mark + encoded(options)
            said = await self._ask("change", version, *pairs)
        for name, options in changed.items():
            if name != leaving:
                await self._adopt(options, said)

    async def _adopt(self, options: QueueOptions, version: int) -> None:
        expiry = options.expire_after
        life = "" if expiry is None else seconds(min(expiry, _CENTURY))
        keys = self.keys.mailbox(options.name)
        await self._link.timed(ADOPT, keys, version, life)

    def _options(self, stored: bytes) -> QueueOptions:
        return super()._options(stored.removeprefix(_LEAVING))
