"""The list of our mailboxes and their options; BullMQ knows nothing of it."""

from deadletter.backends._redis.link import Link
from deadletter.backends._redis.register import Change, Listed, Register, encoded
from deadletter.ports.broker import QueueOptions

from .keys import Keys
from .scripts import PURGE, REGISTRY


class Registry(Register):
    """All queues behind one prefix that were used through us."""

    script = REGISTRY

    def __init__(self, link: Link, keys: Keys) -> None:
        super().__init__(link, keys.registry)
        self.keys = keys

    async def join(self, name: str) -> None:
        """Put a queue on the list if it is not there yet."""
        await self._ask("join", name, encoded(QueueOptions(name=name)))

    async def change(self, change: Change) -> None:
        """Change options, if nobody else has changed any since they were looked at."""
        said = 0
        while not said:
            version, listed = await self._read()
            said = await self._ask("change", version, *_pairs(change(listed)))

    async def leave(self, name: str, change: Change) -> int:
        """Delete a queue, and change others with it; how many messages it had."""
        said = -1
        while said < 0:
            version, listed = await self._read()
            others = {who: what for who, what in change(listed).items() if who != name}
            pairs, keys = _pairs(others), self.keys.queue(name)
            said = await self._link.timed(PURGE, keys, version, name, *pairs)
        return said


def _pairs(changed: Listed) -> list[str | bytes]:
    return [
        part for name, options in changed.items() for part in (name, encoded(options))
    ]
