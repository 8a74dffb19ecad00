"""The queues we know: where they are, and how they are set up."""

import asyncio
from typing import Any, Final

from msgspec import Struct

from deadletter.core.errors import Refused
from deadletter.ports.broker import QueueOptions
from deadletter.ports.time import Clock

from .errors import NoQueue
from .link import Link
from .names import Names, is_fifo
from .options import RETENTION, options_of

FRESH: Final = 60.0  # seconds for which what we know of a queue is taken for true
_ABSENT: Final = 5.0  # ...and that it is not there
_LIMIT: Final = 1_048_576  # bytes


class Queue(Struct, frozen=True, kw_only=True):
    """A queue, as it was when we looked."""

    name: str  # the mailbox
    url: str
    arn: str
    attributes: dict[str, str]
    options: QueueOptions
    fifo: bool
    limit: int  # bytes of one message, attributes included


class Registry:
    """Finds queues, makes those that are missing, remembers for a while."""

    def __init__(self, link: Link, names: Names, clock: Clock) -> None:
        self.names = names
        self._link = link
        self._clock = clock
        self._known: dict[str, tuple[Queue | None, float]] = {}
        self._looking = asyncio.Lock()

    async def get(self, mailbox: str) -> Queue:
        """The queue of a mailbox, made if it is not there."""
        found = await self._find(mailbox, self.names.queue(mailbox))
        return found or await self.make(mailbox)

    async def find(self, mailbox: str) -> Queue | None:
        """The queue of a mailbox, if it is there."""
        return await self._find(mailbox, self.names.queue(mailbox))

    async def suspects(self, mailbox: str, *, make: bool = False) -> Queue | None:
        """The queue in which the suspects of a mailbox wait, if there is one."""
        if is_fifo(mailbox):
            return None
        name = self.names.suspects(mailbox)
        found = await self._find(mailbox, name)
        if found is None and make:
            return await self._make(mailbox, name)
        return found

    async def make(self, mailbox: str) -> Queue:
        """Make the queue of a mailbox."""
        return await self._make(mailbox, self.names.queue(mailbox))

    def forget(self, mailbox: str) -> None:
        """What we knew of a mailbox is no longer true."""
        self._known.pop(self.names.queue(mailbox), None)
        self._known.pop(self.names.suspects(mailbox), None)

    async def describe(self, mailbox: str, url: str) -> Queue:
        """How a queue is set up."""
        asked = self._link.call(
            "get_queue_attributes", QueueUrl=url, AttributeNames=["All"]
        )
        answer, tags = await asyncio.gather(asked, self._tags(url))
        attributes: dict[str, str] = answer.get("Attributes", {})
        return Queue(
            name=mailbox,
            url=url,
            arn=attributes.get("QueueArn", ""),
            attributes=attributes,
            options=options_of(mailbox, attributes, tags, self.names),
            fifo=is_fifo(mailbox),
            limit=int(attributes.get("MaximumMessageSize", _LIMIT)),
        )

    async def _find(self, mailbox: str, name: str) -> Queue | None:
        known = self._remembered(name)
        if known is not None:
            return known[0]
        async with self._looking:
            known = self._remembered(name)
            if known is not None:
                return known[0]
            found = await self._looked_up(mailbox, name)
            self._known[name] = (found, self._clock.monotonic())
            return found

    def _remembered(self, name: str) -> tuple[Queue | None, float] | None:
        known = self._known.get(name)
        if known is None:
            return None
        fresh = _ABSENT if known[0] is None else FRESH
        return known if self._clock.monotonic() - known[1] < fresh else None

    async def _looked_up(self, mailbox: str, name: str) -> Queue | None:
        try:
            answer = await self._link.call("get_queue_url", QueueName=name)
            return await self.describe(mailbox, answer["QueueUrl"])
        except NoQueue:
            return None

    async def _make(self, mailbox: str, name: str) -> Queue:
        attributes = {"MessageRetentionPeriod": str(RETENTION)}
        if is_fifo(name):
            attributes["FifoQueue"] = "true"
        try:
            answer = await self._link.call(
                "create_queue", QueueName=name, Attributes=attributes
            )
        except Refused as error:
            raise Refused(
                f"there is no queue {name}, and it cannot be made: create it first"
                f" (kept for 14 days at best). {error}"
            ) from error
        made = await self.describe(mailbox, answer["QueueUrl"])
        self._known[name] = (made, self._clock.monotonic())
        return made

    async def _tags(self, url: str) -> dict[str, Any]:
        try:
            answer = await self._link.call("list_queue_tags", QueueUrl=url)
        except Refused:
            return {}  # not everybody may read them; they only say what we wrote
        return dict(answer.get("Tags", {}))
