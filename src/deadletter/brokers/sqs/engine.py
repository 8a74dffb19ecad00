"""The engine on Amazon SQS: source and sink of a mailbox, and all mailboxes of an account."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from aiobotocore.session import get_session  # type: ignore[import-untyped]
from msgspec import structs
from msgspec.structs import replace

from deadletter.core.errors import BackendError, ConfigError, Conflict, NotFound, Refused
from deadletter.core.message import Delivery, Message
from deadletter.core.topology import check_deletion, validate
from deadletter.kit import MailboxEngine, with_expiry
from deadletter.ports.broker import QueueInfo, QueueOptions, Settlement, Swept
from deadletter.ports.features import Clock, Dice, Durability, Features

from .body_store import open_body_store
from .connection import (
    ERRORS,
    Address,
    NoQueue,
    Options,
    SomeRefused,
    SomeUnsent,
    SqsService,
    address_of,
    check,
    client,
    url_form,
)
from .message_format import QueueNames, envelope_of, is_fifo
from .receiver import Receiver
from .registry import (
    ADVICE,
    TAGS,
    Queue,
    QueueRegistry,
    check_options,
    conflict,
    redrive_of,
    redrive_text,
    tags_of,
)
from .sender import Sender
from .settler import HistoryCache, Settler


class SqsSource:
    """Source of one mailbox."""

    def __init__(
        self,
        mailbox: str,
        features: Features,
        receiver: Receiver,
        settler: Settler,
        returning: "set[asyncio.Task[None]]",
    ) -> None:
        self.mailbox = mailbox
        self.features = features
        self._receiver = receiver
        self._settler = settler
        self._returning = returning  # what cancelled receives may have claimed

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1 or (alone and is_fifo(self.mailbox)):
            return []
        receiving = self._receiver.receive(
            self.mailbox, limit=1 if alone else limit, wait=wait, lease=lease, alone=alone
        )
        under_way = asyncio.ensure_future(receiving)
        try:
            return await asyncio.shield(under_way)
        except asyncio.CancelledError:
            # SQS may be delivering just now: release whatever arrives.
            task = asyncio.create_task(self._give_back(under_way))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)
            raise

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Delete or release deliveries; return for each whether it was still ours."""
        return await self._settler.settle(self.mailbox, settlements)

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases to `lease` seconds from now; return for each whether it is still ours."""
        return await self._settler.extend(self.mailbox, deliveries, lease)

    async def _give_back(self, under_way: "asyncio.Future[list[Delivery]]") -> None:
        try:
            claims = [delivery.receipt for delivery in await under_way]
            await self._settler.put_back(self.mailbox, claims)
        except BackendError:
            return  # they come back when their leases are over


class SqsSink:
    """Sink of one mailbox."""

    def __init__(self, mailbox: str, registry: QueueRegistry, sender: Sender, clock: Clock) -> None:
        self.mailbox = mailbox
        self._registry = registry
        self._sender = sender
        self._clock = clock

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """
        Send messages; return when SQS has confirmed all of them.

        Raises before anything is sent if a message is invalid. If SQS accepts only
        some, `PartlySent` says which: sending those again doubles them, except in a
        FIFO queue within five minutes.
        """
        if not messages:
            return
        failures = await self._sent(messages, delay)
        if all(isinstance(failure, NoQueue) for failure in failures):
            self._registry.forget(self.mailbox)  # deleted meanwhile: create it again
            failures = await self._sent(messages, delay)
        failed = {n: failure for n, failure in enumerate(failures) if failure}
        if not failed:
            return
        if len(failed) == len(messages) == 1:
            raise failed[0]
        refused = {n: why for n, why in failed.items() if isinstance(why, Refused)}
        others = (why for why in failed.values() if not isinstance(why, Refused))
        cause = next(others, None)
        sent = set(range(len(messages))) - failed.keys()
        first = next(iter(failed.values()))
        told = f"{len(sent)} of {len(messages)} messages were sent, then: {first}"
        raise (SomeRefused if cause is None else SomeUnsent)(
            told if sent else str(first), sent=sent, refused=refused, cause=cause
        ) from first

    async def _sent(self, messages: Sequence[Message], delay: float) -> list[BackendError | None]:
        queue = await self._registry.get(self.mailbox)
        entries = [
            await self._sender.fresh(queue, message, envelope_of(message), delay)
            for message in with_expiry(messages, queue.options.expire_after, self._clock.now())
        ]
        return await self._sender.send(queue, entries)


_LOOK: Final = 5.0  # seconds between looks for suspects where there were none
_READY: Final = "ApproximateNumberOfMessages"
_CLAIMED: Final = "ApproximateNumberOfMessagesNotVisible"
_DELAYED: Final = "ApproximateNumberOfMessagesDelayed"


class SqsBroker:
    """The queues of an account whose names begin with our prefix."""

    def __init__(
        self,
        service: SqsService,
        registry: QueueRegistry,
        sender: Sender,
        features: Features,
        clock: Clock,
        *,
        in_place: bool = False,
    ) -> None:
        self.features = features
        self.seal = sender.seal
        self._in_place = in_place  # retry=visibility
        self._service = service
        self._registry = registry
        self._sender = sender
        self._clock = clock
        cache = HistoryCache()
        self._settler = Settler(service, registry, sender, cache, clock)
        self._receiver = Receiver(
            service, registry, sender, self._settler, cache=cache, clock=clock, in_place=in_place
        )
        self._returning: set[asyncio.Task[None]] = set()
        self._sources: dict[str, float] = {}  # when we last looked for suspects
        self._changing = asyncio.Lock()

    def source(self, mailbox: str) -> SqsSource:
        """Return the source of a mailbox, which is created if it is missing."""
        self._registry.names.check(mailbox)
        if not is_fifo(mailbox):
            self._sources.setdefault(mailbox, float("-inf"))
        return SqsSource(
            mailbox,
            features_of(mailbox, self.features, in_place=self._in_place),
            self._receiver,
            self._settler,
            self._returning,
        )

    def sink(self, mailbox: str) -> SqsSink:
        """Return the sink of a mailbox, which is created if it is missing."""
        self._registry.names.check(mailbox)
        return SqsSink(mailbox, self._registry, self._sender, self._clock)

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox; raise Conflict if it exists with other options."""
        async with self._changing:
            existing = await self._existing(options)
            self._check(options, existing)
            present = existing.get(options.name)
            if present is not None and present.options != options:
                raise Conflict(f"queue {options.name} exists with other options: update it instead")
            if present is None and self._registry.is_fixed:
                raise NotFound(f"there is no queue {options.name!a}: {ADVICE}")
            if not self._registry.is_fixed:
                await self._set(options, existing)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        async with self._changing:
            existing = await self._existing(options)
            if options.name not in existing:
                raise NotFound(f"there is no queue {options.name!a}: create it first")
            self._check(options, existing)
            if existing[options.name].options != options:
                self._check_changes(f"set its dead queue to {options.dead_queue or 'none'}")
                await self._set(options, existing)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox; return about how many messages were deleted with it."""
        async with self._changing:
            existing = await self._existing()
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            self._check_changes(f"delete {name}")
            known = {queue.name: queue.options for queue in existing.values()}
            for user in check_deletion(name, known, force=force):
                detached = structs.replace(known[user], dead_queue=None)
                await self._set(detached, existing)
            self._registry.forget(name)
            suspects = await self._suspects(name)
            queues = [queue for queue in (existing[name], suspects) if queue]
            for queue in queues:
                await self._service.call("delete_queue", QueueUrl=queue.url)
            self._registry.forget(name)
            return sum(_count(queue, _READY, _CLAIMED, _DELAYED) for queue in queues)

    async def queues(self) -> Sequence[QueueInfo]:
        """Return all mailboxes, sorted by name; the counts of SQS are late and approximate."""
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
        Report which mailboxes of this process have suspects.

        SQS cannot be searched: the next receiver finds lost claims and expired messages.
        """
        lost, self._receiver.lost = self._receiver.lost, {}
        now = self._clock.monotonic()
        due = [
            name for name, looked in self._sources.items() if name in lost or now - looked >= _LOOK
        ]
        found = await asyncio.gather(*(self._suspects(name) for name in due))
        waiting = set(lost)
        for name, queue in zip(due, found, strict=True):
            there = queue is not None and _count(queue, _READY, _CLAIMED, _DELAYED) > 0
            # While there are suspects, look again in every sweep.
            self._sources[name] = float("-inf") if there else now
            if queue is not None and _count(queue, _READY):
                waiting.add(name)
        return Swept(sum(lost.values()), frozenset(waiting))

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return why SQS would move a message away before its last attempt, or None."""
        queue = await self._registry.find(mailbox)
        if queue is None:
            return None
        redrive = redrive_of(queue.attributes)
        return conflict(mailbox, attempts, redrive=redrive, in_place=self._in_place)

    async def close(self) -> None:
        """Wait until the claims of cancelled receives are released."""
        await asyncio.gather(*self._returning)

    def _check_changes(self, what: str) -> None:
        if self._registry.is_fixed:
            raise ConfigError(
                "queues are not changed with ?create=no or ?account= in the SQS URL:"
                f" {what} where your queues are defined, or leave these out of the URL"
            )

    def _check(self, options: QueueOptions, existing: dict[str, Queue]) -> None:
        validate(options, {name: queue.options for name, queue in existing.items()})
        self._registry.names.check(options.name)
        check_options(options)

    async def _set(self, options: QueueOptions, existing: dict[str, Queue]) -> None:
        """Create a queue if it is missing, and set its options."""
        queue = existing.get(options.name) or await self._registry.make(options.name)
        target = existing[options.dead_queue].arn if options.dead_queue else None
        policy = redrive_text(options, target)
        if policy != queue.attributes.get("RedrivePolicy", ""):
            await self._service.call(
                "set_queue_attributes", QueueUrl=queue.url, Attributes={"RedrivePolicy": policy}
            )
        tags = tags_of(options)
        stale = [name for name in TAGS if name not in tags]
        await self._service.call("untag_queue", QueueUrl=queue.url, TagKeys=stale)
        if tags:
            await self._service.call("tag_queue", QueueUrl=queue.url, Tags=tags)
        self._registry.forget(options.name)

    async def _existing(self, options: QueueOptions | None = None) -> dict[str, Queue]:
        """Return all mailboxes, described just now."""
        if options is not None and self._registry.account:
            # Queues of another account are not listed: look those up that are named.
            for name in filter(None, (options.name, options.dead_queue)):
                await self._registry.find(name)
        urls = await self._urls()
        mailboxes = _mailboxes(urls, self._registry.names)
        found = await asyncio.gather(
            *(self._described(name, url) for name, url in mailboxes.items())
        )
        return {queue.name: queue for queue in found if queue is not None}

    async def _urls(self) -> dict[str, str]:
        """Return the URLs of all our queues, by name."""
        urls: list[str] = []
        asked = {"QueueNamePrefix": self._registry.names.prefix, "MaxResults": 1000}
        while True:
            answer = await self._service.call("list_queues", **asked)
            urls += answer.get("QueueUrls", ())
            if not answer.get("NextToken"):
                return self._of_account(urls)
            asked["NextToken"] = answer["NextToken"]

    def _of_account(self, urls: Sequence[str]) -> dict[str, str]:
        account, named = self._registry.account, {url.rpartition("/")[2]: url for url in urls}
        if not account:
            return named
        ours = {name: url for name, url in named.items() if url.split("/")[-2] == account}
        return self._registry.known() | ours

    async def _suspects(self, mailbox: str) -> Queue | None:
        """Return the queue of a mailbox's suspects, described just now."""
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


def features_of(mailbox: str, features: Features, *, in_place: bool = False) -> Features:
    """
    Return what a mailbox promises: a FIFO queue keeps the order, but not the history.

    With `in_place` no queue keeps it.
    """
    if in_place or is_fifo(mailbox):
        features = structs.replace(features, keeps_history=False, finds_suspects=False)
    return structs.replace(features, ordered=True) if is_fifo(mailbox) else features


def _mailboxes(urls: dict[str, str], names: QueueNames) -> dict[str, str]:
    """Return the URLs of mailboxes, without those of suspects."""
    named = ((names.mailbox(queue), url) for queue, url in urls.items())
    return {name: url for name, url in named if name is not None}


def _info(queue: Queue, suspects: Queue | None) -> QueueInfo:
    return QueueInfo(
        options=queue.options,
        ready=_count(queue, _READY),
        delayed=_count(queue, _DELAYED),
        claimed=_count(queue, _CLAIMED) + (_count(suspects, _CLAIMED) if suspects else 0),
        suspects=_count(suspects, _READY, _DELAYED) if suspects else 0,
    )


def _count(queue: Queue, *which: str) -> int:
    return sum(int(queue.attributes.get(name, 0)) for name in which)


FEATURES: Final = Features(
    engine="sqs",
    durability=Durability.REPLICATED,  # as Amazon says; an emulator keeps nothing
    ordered=False,  # FIFO queues are
    exact_delay=False,
    fences=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_letters=False,
    keeps_ledger=False,
)


_CALLS: Final = 50  # at once; more wait for a connection
_WAITS: Final = 500
URL: Final = url_form(Options)
_PATIENCE: Final = 10.0  # seconds for an answer
_LONGEST_POLL: Final = 20.0


class SqsEngine(MailboxEngine):
    """Mailboxes on SQS, without letters and ledger."""

    def __init__(
        self, broker: SqsBroker, features: Features, service: SqsService, stack: AsyncExitStack
    ) -> None:
        super().__init__(broker, features)
        self.service = service
        self._mailboxes = broker
        self._stack = stack

    async def close(self) -> None:
        """Release the claims of cancelled receives; close connections."""
        await self._mailboxes.close()
        await self._stack.aclose()


async def connect(url: str, *, clock: Clock, dice: Dice) -> SqsEngine:
    """Open the engine of a URL."""
    said = URL.read(url)
    address, options = address_of(said), said.options
    async with AsyncExitStack() as stack:
        service, body_store = await _opened(address, options, stack)
        durable = Durability.REPLICATED if address.is_amazon else Durability.NONE
        features = replace(FEATURES, durability=durable)
        registry = QueueRegistry(
            service,
            QueueNames(options.prefix),
            clock,
            account=options.account,
            is_fixed=options.create == "no",
        )
        sender = Sender(service, body_store, clock=clock, dice=dice)
        in_place = options.retry == "visibility"
        broker = SqsBroker(service, registry, sender, features, clock, in_place=in_place)
        return SqsEngine(broker, features, service, stack.pop_all())


async def _opened(
    address: Address, options: Options, stack: AsyncExitStack
) -> tuple[SqsService, Any]:
    make = partial(client, get_session(), address)
    try:
        calling = await stack.enter_async_context(make(connections=_CALLS, patience=_PATIENCE))
        patience = _PATIENCE + _LONGEST_POLL
        waiting = await stack.enter_async_context(make(connections=_WAITS, patience=patience))
        body_store = None
        if options.claim_check:
            make_s3 = partial(make, "s3", connections=_CALLS, patience=6 * _PATIENCE)
            body_store = await open_body_store(options.claim_check, make_s3, stack)
    except ERRORS.known as error:
        raise ERRORS.translate_opening(error, address.where) from error
    await check(calling, address, options.prefix)
    return SqsService(calling, waiting), body_store
