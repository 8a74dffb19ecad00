"""All mailboxes: their options, their counts, the way to each."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import structs

from deadletter.core.errors import Conflict, NotFound
from deadletter.core.topology import check_deletion, validate
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features
from deadletter.ports.time import Clock

from .claims import Memory
from .errors import NoQueue
from .link import Link
from .names import Names, is_fifo
from .options import (
    TAGS,
    check_options,
    conflict,
    redrive_of,
    redrive_text,
    tags_of,
)
from .post import Post
from .queue import SqsSink, SqsSource
from .raw import RawMessage, delete_raw, receive_raw
from .receiving import Receiving
from .registry import Queue, Registry
from .settling import Settling

_LOOK: Final = 5.0  # seconds between looks for suspects where there were none
_READY: Final = "ApproximateNumberOfMessages"
_CLAIMED: Final = "ApproximateNumberOfMessagesNotVisible"
_DELAYED: Final = "ApproximateNumberOfMessagesDelayed"


class SqsBroker:
    """The account's queues that begin with our prefix."""

    def __init__(
        self,
        link: Link,
        registry: Registry,
        post: Post,
        features: Features,
        clock: Clock,
    ) -> None:
        self.features = features
        self.seal = post.seal
        self._link = link
        self._registry = registry
        self._post = post
        self._clock = clock
        memory = Memory()
        self._settling = Settling(link, registry, post, memory, clock)
        self._receiving = Receiving(
            link, registry, post, self._settling, memory=memory, clock=clock
        )
        self._returning: set[asyncio.Task[None]] = set()
        self._sources: dict[str, float] = {}  # when we last looked for suspects
        self._changing = asyncio.Lock()

    def source(self, mailbox: str) -> SqsSource:
        """Deliveries of one mailbox, which is made if it is not there yet."""
        self._registry.names.check(mailbox)
        if not is_fifo(mailbox):
            self._sources.setdefault(mailbox, float("-inf"))
        return SqsSource(
            mailbox,
            features_of(mailbox, self.features),
            self._receiving,
            self._settling,
            self._returning,
        )

    def sink(self, mailbox: str) -> SqsSink:
        """The way into one mailbox, which is made if it is not there yet."""
        self._registry.names.check(mailbox)
        return SqsSink(mailbox, self._registry, self._post, self._clock)

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        async with self._changing:
            existing = await self._existing()
            self._check(options, existing)
            present = existing.get(options.name)
            if present is not None and present.options != options:
                raise Conflict(
                    f"queue {options.name} exists with other options: update it instead"
                )
            await self._set(options, existing)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        async with self._changing:
            existing = await self._existing()
            if options.name not in existing:
                raise NotFound(f"there is no queue {options.name!a}: create it first")
            self._check(options, existing)
            await self._set(options, existing)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it, about."""
        async with self._changing:
            existing = await self._existing()
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            known = {queue.name: queue.options for queue in existing.values()}
            for user in check_deletion(name, known, force=force):
                detached = structs.replace(known[user], dead_queue=None)
                await self._set(detached, existing)
            self._registry.forget(name)
            suspects = await self._suspects(name)
            queues = [queue for queue in (existing[name], suspects) if queue]
            for queue in queues:
                await self._link.call("delete_queue", QueueUrl=queue.url)
            self._registry.forget(name)
            return sum(_count(queue, _READY, _CLAIMED, _DELAYED) for queue in queues)

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name; SQS counts roughly, and late."""
        urls = await self._urls()
        known = self._registry.names
        found = await asyncio.gather(
            *(
                asyncio.gather(
                    self._described(name, urls[known.queue(name)]),
                    self._described(name, urls.get(known.suspects(name))),
                )
                for name in sorted(_mailboxes(urls, known))
            )
        )
        return [_info(queue, suspects) for queue, suspects in found if queue]

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Say where suspects wait, in mailboxes that this process works.

        SQS cannot be searched: lost claims and what has expired are found by those
        who receive them next.
        """
        lost, self._receiving.lost = self._receiving.lost, {}
        now = self._clock.monotonic()
        due = [
            name
            for name, looked in self._sources.items()
            if name in lost or now - looked >= _LOOK
        ]
        found = await asyncio.gather(*(self._suspects(name) for name in due))
        waiting = set(lost)
        for name, queue in zip(due, found, strict=True):
            there = queue is not None and _count(queue, _READY, _CLAIMED, _DELAYED) > 0
            # Where there are some we look again the next time.
            self._sources[name] = float("-inf") if there else now
            if queue is not None and _count(queue, _READY):
                waiting.add(name)
        return Swept(sum(lost.values()), frozenset(waiting))

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Why SQS would take a message away before so many attempts; None if not."""
        queue = await self._registry.find(mailbox)
        if queue is None:
            return None
        return conflict(mailbox, attempts, redrive=redrive_of(queue.attributes))

    async def read_raw(self, mailbox: str, **how: int) -> Sequence[RawMessage]:
        """Messages as they are, for draining; see `raw.receive_raw`."""
        queue = await self._there(mailbox)
        return await receive_raw(self._link, self._post, queue.url, **how)

    async def forget_raw(
        self, mailbox: str, messages: Sequence[RawMessage]
    ) -> Sequence[bool]:
        """Delete what was read raw; says for each if it was still ours."""
        queue = await self._there(mailbox)
        return await delete_raw(self._link, queue.url, messages)

    async def close(self) -> None:
        """Wait for what cancelled receives put back."""
        await asyncio.gather(*self._returning)

    async def _there(self, mailbox: str) -> Queue:
        self._registry.names.check(mailbox)
        queue = await self._registry.find(mailbox)
        if queue is None:
            raise NotFound(f"there is no queue {mailbox!a}: check its name and region")
        return queue

    def _check(self, options: QueueOptions, existing: dict[str, Queue]) -> None:
        validate(options, {name: queue.options for name, queue in existing.items()})
        self._registry.names.check(options.name)
        check_options(options)

    async def _set(self, options: QueueOptions, existing: dict[str, Queue]) -> None:
        """Make a queue be as asked, and wait until SQS says it is."""
        queue = existing.get(options.name) or await self._registry.make(options.name)
        target = existing[options.dead_queue].arn if options.dead_queue else None
        policy = redrive_text(options, target)
        if policy != queue.attributes.get("RedrivePolicy", ""):
            await self._link.call(
                "set_queue_attributes",
                QueueUrl=queue.url,
                Attributes={"RedrivePolicy": policy},
            )
        tags = tags_of(options)
        stale = [name for name in TAGS if name not in tags]
        await self._link.call("untag_queue", QueueUrl=queue.url, TagKeys=stale)
        if tags:
            await self._link.call("tag_queue", QueueUrl=queue.url, Tags=tags)
        self._registry.forget(options.name)

    async def _existing(self) -> dict[str, Queue]:
        """All mailboxes, as they are now."""
        urls = await self._urls()
        mailboxes = _mailboxes(urls, self._registry.names)
        found = await asyncio.gather(
            *(self._described(name, url) for name, url in mailboxes.items())
        )
        return {queue.name: queue for queue in found if queue is not None}

    async def _urls(self) -> dict[str, str]:
        """The addresses of all queues that are ours, by name."""
        urls: list[str] = []
        asked = {"QueueNamePrefix": self._registry.names.prefix, "MaxResults": 1000}
        while True:
            answer = await self._link.call("list_queues", **asked)
            urls += answer.get("QueueUrls", ())
            if not answer.get("NextToken"):
                return {url.rpartition("/")[2]: url for url in urls}
            asked["NextToken"] = answer["NextToken"]

    async def _suspects(self, mailbox: str) -> Queue | None:
        """The suspects of a mailbox, counted just now."""
        known = await self._registry.suspects(mailbox)
        return await self._described(mailbox, None if known is None else known.url)

    async def _described(self, mailbox: str, url: str | None) -> Queue | None:
        if url is None:
            return None
        try:
            return await self._registry.describe(mailbox, url)
        except NoQueue:
            self._registry.forget(mailbox)  # deleted, and still listed for a while
            return None


def features_of(mailbox: str, features: Features) -> Features:
    """What a mailbox promises: a FIFO queue keeps order, and less of the story."""
    if not is_fifo(mailbox):
        return features
    return structs.replace(
        features, ordered=True, keeps_history=False, finds_suspects=False
    )


def _mailboxes(urls: dict[str, str], names: Names) -> dict[str, str]:
    """The addresses of mailboxes alone."""
    named = ((names.mailbox(queue), url) for queue, url in urls.items())
    return {name: url for name, url in named if name is not None}


def _info(queue: Queue, suspects: Queue | None) -> QueueInfo:
    return QueueInfo(
        options=queue.options,
        ready=_count(queue, _READY),
        delayed=_count(queue, _DELAYED),
        claimed=_count(queue, _CLAIMED)
        + (_count(suspects, _CLAIMED) if suspects else 0),
        suspects=_count(suspects, _READY, _DELAYED) if suspects else 0,
    )


def _count(queue: Queue, *which: str) -> int:
    return sum(int(queue.attributes.get(name, 0)) for name in which)
