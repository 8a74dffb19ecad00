"""Queues of the account: their URLs, attributes, tags and redrive policies."""

import asyncio
from re import compile as pattern
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError, Refused
from deadletter.ports.broker import QueueOptions
from deadletter.ports.features import Clock

from .connection import NoQueue, SqsService
from .message_format import QueueNames, is_fifo

MOST_RECEIVES: Final = 1000
RETENTION: Final = 14 * 86_400  # seconds, the longest there is
_ATTEMPTS: Final = "dlq-max-attempts"
_EXPIRY: Final = "dlq-expire-after"
_REFERENCE: Final = "dlq-reference"
TAGS: Final = (_ATTEMPTS, _EXPIRY, _REFERENCE)
_TAG: Final = pattern(r"[\w \-.:/=+@]{0,256}")


class Redrive(Struct, frozen=True, rename="camel"):
    """The redrive policy of a queue: its dead queue, and the limit of receives."""

    dead_letter_target_arn: str
    max_receive_count: int

    @property
    def queue(self) -> str:
        """The name of the dead queue."""
        return self.dead_letter_target_arn.rpartition(":")[2]


_redrive: Final = msgspec.json.Decoder(Redrive, strict=False).decode


def check_options(options: QueueOptions) -> None:
    """Raise ConfigError for options that SQS cannot store."""
    if not _TAG.fullmatch(options.reference):
        raise ConfigError(
            "a reference is a tag on SQS: up to 256 letters, digits, spaces and"
            " any of _ . : / = + - @"
        )
    if options.dead_queue is None:
        return
    if is_fifo(options.name) is not is_fifo(options.dead_queue):
        raise ConfigError(
            f"the dead queue of a FIFO queue is FIFO, and of a standard one standard:"
            f" {options.name} cannot have {options.dead_queue}"
        )
    if options.max_attempts == 1:
        raise ConfigError(
            "with max_attempts 1 SQS would move a message to the dead queue when its"
            " worker dies, before anybody can look at it: give it 2 or more"
        )


def redrive_of(attributes: dict[str, str]) -> Redrive | None:
    """Return the redrive policy of a queue, or None."""
    try:
        return _redrive(attributes["RedrivePolicy"])
    except (KeyError, msgspec.MsgspecError):
        return None


def redrive_text(options: QueueOptions, target_arn: str | None) -> str:
    """Return the redrive policy for a mailbox as JSON; an empty one removes it."""
    if target_arn is None:
        return ""
    count = min(options.max_attempts or MOST_RECEIVES, MOST_RECEIVES)
    policy = {"deadLetterTargetArn": target_arn, "maxReceiveCount": str(count)}
    return msgspec.json.encode(policy).decode()


def tags_of(options: QueueOptions) -> dict[str, str]:
    """Return the tags of a queue that store our options."""
    tags = {}
    if options.max_attempts:
        tags[_ATTEMPTS] = str(options.max_attempts)
    if options.expire_after is not None:
        tags[_EXPIRY] = repr(options.expire_after)
    if options.reference:
        tags[_REFERENCE] = options.reference
    return tags


def options_of(
    name: str, attributes: dict[str, str], tags: dict[str, Any], names: QueueNames
) -> QueueOptions:
    """Return the options that a queue's attributes and tags store."""
    redrive = redrive_of(attributes)
    limit, dead = 0, None
    if redrive is not None:
        # The most there is means no limit; one of another prefix has its whole name.
        if redrive.max_receive_count < MOST_RECEIVES:
            limit = redrive.max_receive_count
        dead = names.mailbox(redrive.queue) or redrive.queue
    return QueueOptions(
        name=name,
        dead_queue=dead,
        max_attempts=int(limit or _number(tags.get(_ATTEMPTS)) or 0),
        expire_after=_number(tags.get(_EXPIRY)),
        reference=str(tags.get(_REFERENCE, "")),
    )


def conflict(
    name: str, attempts: int, *, redrive: Redrive | None, in_place: bool = False
) -> str | None:
    """
    Return why SQS would move messages away before their last attempt, or None.

    On a standard queue every retry is a new copy, and SQS counts only receives that
    nobody answered for; in a FIFO queue it counts them all. With `in_place` it counts
    them all as well, and moves messages itself after the last one.
    """
    if redrive is None:
        return None
    needed = 2
    if in_place or is_fifo(name):
        last = attempts if in_place else attempts + 1
        needed = min(last, MOST_RECEIVES) if attempts else MOST_RECEIVES
    if redrive.max_receive_count < needed:
        return (
            f"{name}: SQS moves a message to {redrive.queue} after"
            f" {redrive.max_receive_count} receives (maxReceiveCount), but its handler"
            f" may need {needed}: the office would never see it. Set maxReceiveCount to"
            f" {needed} or more, or max_attempts lower"
        )
    return None


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


ADVICE: Final = (
    "create it, or leave ?create=no and ?account= out of the SQS URL to have queues made"
)
FRESH: Final = 60.0  # seconds for which what we know of a queue is taken for true
_ABSENT: Final = 5.0  # ...and that it is not there
_LIMIT: Final = 1_048_576  # bytes


class Queue(Struct, frozen=True, kw_only=True):
    """A queue, as it was when it was described."""

    name: str  # the mailbox
    url: str
    arn: str
    attributes: dict[str, str]
    options: QueueOptions
    fifo: bool
    limit: int  # bytes of one message, attributes included


class QueueRegistry:
    """Finds and creates queues, and caches what it knows of them."""

    def __init__(
        self,
        service: SqsService,
        names: QueueNames,
        clock: Clock,
        *,
        account: str = "",
        is_fixed: bool = False,
    ) -> None:
        self.names = names
        self.account = account  # of the queues; empty: the one of our identity
        self.is_fixed = is_fixed or bool(account)  # queues are neither made nor changed
        self._service = service
        self._clock = clock
        self._known: dict[str, tuple[Queue | None, float]] = {}
        self._looking = asyncio.Lock()

    async def get(self, mailbox: str) -> Queue:
        """Return the queue of a mailbox, which is created if it is missing."""
        found = await self._find(mailbox, self.names.queue(mailbox))
        return found or await self.make(mailbox)

    async def find(self, mailbox: str) -> Queue | None:
        """Return the queue of a mailbox, or None."""
        return await self._find(mailbox, self.names.queue(mailbox))

    async def suspects(self, mailbox: str, *, make: bool = False) -> Queue | None:
        """Return the queue with the suspects of a mailbox, or None."""
        if is_fifo(mailbox):
            return None
        name = self.names.suspects(mailbox)
        found = await self._find(mailbox, name)
        if found is None and make:
            return await self._make(mailbox, name)
        return found

    async def make(self, mailbox: str) -> Queue:
        """Create the queue of a mailbox."""
        return await self._make(mailbox, self.names.queue(mailbox))

    def known(self) -> dict[str, str]:
        """Return the URLs of the queues found so far, by their names."""
        return {name: queue.url for name, (queue, _) in self._known.items() if queue is not None}

    def forget(self, mailbox: str) -> None:
        """Drop what is cached about a mailbox."""
        self._known.pop(self.names.queue(mailbox), None)
        self._known.pop(self.names.suspects(mailbox), None)

    async def describe(self, mailbox: str, url: str) -> Queue:
        """Return a queue with its attributes and options."""
        asked = self._service.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
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
        owner = {"QueueOwnerAWSAccountId": self.account} if self.account else {}
        try:
            answer = await self._service.call("get_queue_url", QueueName=name, **owner)
            return await self.describe(mailbox, answer["QueueUrl"])
        except NoQueue:
            return None

    async def _make(self, mailbox: str, name: str) -> Queue:
        if self.is_fixed:
            raise NoQueue(f"there is no queue {name}{self._where}: {ADVICE}")
        attributes = {"MessageRetentionPeriod": str(RETENTION)}
        if is_fifo(name):
            attributes["FifoQueue"] = "true"
        try:
            answer = await self._service.call("create_queue", QueueName=name, Attributes=attributes)
        except Refused as error:
            raise Refused(
                f"there is no queue {name}, and we may not create it: create it first, with a"
                f" retention of 14 days. {error}"
            ) from error
        made = await self.describe(mailbox, answer["QueueUrl"])
        self._known[name] = (made, self._clock.monotonic())
        return made

    @property
    def _where(self) -> str:
        return f" in the account {self.account}" if self.account else ""

    async def _tags(self, url: str) -> dict[str, Any]:
        try:
            answer = await self._service.call("list_queue_tags", QueueUrl=url)
        except Refused:
            return {}  # not everybody may read them; they only say what we wrote
        return dict(answer.get("Tags", {}))
