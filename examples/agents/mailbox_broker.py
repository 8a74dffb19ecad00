"""
A broker over mailboxes that are not on a backend, such as those a user has written.

The runtime works such a mailbox as it works any other: this module translates its calls
into `receive`, `send`, `acknowledge`, `nack` and `reply`. The mailbox is called on threads,
because its methods block.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import ceil
from threading import Thread
from typing import Any, Final, TypeVar

import msgspec

from deadletter import Unavailable
from deadletter.core.burial import from_message, sign_copy, to_message
from deadletter.core.errors import ConfigError, Refused
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter as Kept
from deadletter.core.message import IN_REPLY_TO, Delivery
from deadletter.core.message import Message as Sent
from deadletter.core.signing import Keys
from deadletter.ports import (
    Acked,
    Clock,
    Durability,
    Features,
    QueueInfo,
    QueueOptions,
    Settlement,
    Swept,
)
from deadletter.profiles.mailbox import MailboxDeadLetter, import_

from .dead_letter import DeadLetter, to_dead_letter
from .message import Mailbox, Message

T = TypeVar("T")

FEATURES: Final = Features(
    engine="mailbox",
    durability=Durability.NONE,  # unknown: the mailbox does not say
    keeps_history=False,
    finds_suspects=False,
    sees_lost=False,
    sees_delayed=False,
    dooms=False,
    tallies=False,
    keeps_options=False,
    owns_fields=True,
    keeps_letters=False,
    keeps_ledger=False,
)
MOST: Final = 10  # messages per receive
_REMEMBERED: Final = 10_000  # messages whose earlier attempts this process knows
_LEASE_ENDED: Final = frozenset({"ReceiptHandleExpiredError", "MessageFinalizedError"})
_NO_REPLY: Final = frozenset({"ReplyNotAvailableError", "MessageFinalizedError"})


class MailboxBroker:
    """The mailboxes of some loops, by name."""

    features = FEATURES

    def __init__(self, mailboxes: Iterable[Mailbox[Any, Any]], keys: Keys, clock: Clock) -> None:
        self._boxes = {box.name: box for box in mailboxes}
        self._sources = {name: MailboxSource(box, keys, clock) for name, box in self._boxes.items()}
        self._options = {name: QueueOptions(name=name) for name in self._boxes}
        self._keys = keys
        self._clock = clock

    def source(self, mailbox: str) -> "MailboxSource":
        """Return the receiving side of one of the mailboxes."""
        return self._sources[mailbox]

    def sink(self, mailbox: str) -> "LetterSink | ReplySink":
        """Return the sink for copies of letters, or for replies to a mailbox that is not ours."""
        box = self._boxes.get(mailbox)
        if box is None:
            return ReplySink(mailbox, self._sources.values())
        return LetterSink(box, self._sources, self._keys, self._clock)

    async def create(self, options: QueueOptions) -> None:
        """Do nothing: the mailboxes exist."""

    async def update(self, options: QueueOptions) -> None:
        """Remember the options; the mailboxes keep none."""
        self._options[options.name] = options

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Refuse: only its owner can delete such a mailbox."""
        raise ConfigError(f"mailbox {name} is not on a backend: delete it where it was created")

    async def queues(self) -> Sequence[QueueInfo]:
        """Return the mailboxes by name; their numbers are unknown here."""
        return [
            QueueInfo(options=self._options[name], ready=0, delayed=0, claimed=0, suspects=0)
            for name in sorted(self._options)
        ]

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: such a mailbox has no limit of its own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Return nothing: the mailbox itself returns messages whose lease has ended."""
        return Swept()


class MailboxSource:
    """The receiving side of one mailbox."""

    features = FEATURES

    def __init__(self, box: Mailbox[Any, Any], keys: Keys, clock: Clock) -> None:
        self.mailbox = box.name
        self._box = box
        self._keys = keys
        self._clock = clock
        self._held: dict[str, Message[Any, Any]] = {}  # by the id the runtime knows it by
        self._news: dict[str, object] = {}  # error replies that are about to be sent
        self._stories: OrderedDict[str, tuple[datetime | None, str]] = OrderedDict()

    def message(self, message_id: str) -> Message[Any, Any] | None:
        """Return the message that is held under this id, or for this letter."""
        return self._held.get(message_id)

    def announce(self, message_id: str, news: object) -> None:
        """Remember the error reply of a message, for the sink that sends it."""
        self._news[message_id] = news

    async def answer(self, message_id: str) -> None:
        """Send the error reply of a message; there is none for one that was answered."""
        message, news = self._held.get(message_id), self._news.pop(message_id, None)
        if message is None or news is None:
            return
        try:
            await in_thread(partial(message.reply, news))
        except Exception as error:
            if _is_one_of(error, _NO_REPLY):
                return
            raise Refused(f"the reply was not sent: {error}") from error

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Receive messages; a call that is cancelled returns what it gets later."""
        if alone:
            return ()
        receive = partial(
            self._box.receive,
            max_messages=min(limit, MOST),
            visibility_timeout=_whole(lease),
            wait_time_seconds=_whole(wait),
        )
        found = await self._called(receive, _hand_back)
        return [self._delivery(message) for message in found]

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Acknowledge or nack each message."""
        return [await self._settled(one) for one in settlements]

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases, where the messages can do that."""
        return [await self._extended(one.receipt, _whole(lease)) for one in deliveries]

    def _delivery(self, message: Message[Any, Any]) -> Delivery:
        letter = _kept(message.body)
        sent = _sent(message) if letter is None else self._copy(letter)
        known_as = sent.id if letter is None else letter.id
        first, history = self._stories.get(message.id, (None, ""))
        if first is None and message.delivery_count == 1:
            first = self._clock.now()
        self._remember(message.id, first, history)
        self._held[known_as] = message
        if letter is None:  # in a dead-letter mailbox it is a letter all the same
            self._held[letter_id(self.mailbox, "", message.id)] = message
        return Delivery(
            message=sent,
            mailbox=self.mailbox,
            attempt=message.delivery_count,
            first_received_at=first,
            history=history,
            receipt=message,
        )

    def _copy(self, letter: Kept) -> Sent:
        return sign_copy(to_message(letter), letter, self.mailbox, self._keys)

    def _remember(self, message_id: str, first: datetime | None, history: str) -> None:
        self._stories[message_id] = (first, history)
        self._stories.move_to_end(message_id)
        if len(self._stories) > _REMEMBERED:
            self._stories.popitem(last=False)

    async def _settled(self, settlement: Settlement) -> bool:
        message: Message[Any, Any] = settlement.delivery.receipt
        if isinstance(settlement, Acked):
            call: Callable[[], None] = message.acknowledge
        else:
            call = partial(message.nack, visibility_timeout=_whole(settlement.delay))
        ours = await self._lease_holds(call)
        if isinstance(settlement, Acked):
            self._stories.pop(message.id, None)
        elif settlement.history is not None:
            first, _ = self._stories.get(message.id, (None, ""))
            self._remember(message.id, first, settlement.history)
        for known_as in [key for key, held in self._held.items() if held is message]:
            del self._held[known_as]
        return ours

    async def _extended(self, message: Any, lease: int) -> bool:
        extend = getattr(message, "extend_visibility", None)
        return extend is None or await self._lease_holds(partial(extend, lease))

    async def _lease_holds(self, call: Callable[[], object]) -> bool:
        try:
            await self._called(call)
        except Unavailable as error:
            if error.__cause__ is not None and _is_one_of(error.__cause__, _LEASE_ENDED):
                return False
            raise
        return True

    async def _called(
        self, call: Callable[[], T], abandoned: Callable[[T], object] | None = None
    ) -> T:
        return await _available(self.mailbox, call, abandoned)


class LetterSink:
    """Sends dead letters to a dead-letter mailbox, each with the body it was sent with."""

    def __init__(
        self, box: Mailbox[Any, Any], sources: dict[str, MailboxSource], keys: Keys, clock: Clock
    ) -> None:
        self.mailbox = box.name
        self._box = box
        self._sources = sources
        self._keys = keys
        self._clock = clock

    async def send(self, messages: Sequence[Sent], *, delay: float = 0.0) -> None:
        """Send each copy as the `DeadLetter` that it stands for."""
        for copy in messages:
            send = partial(self._box.send, self._letter(copy))
            await _available(self.mailbox, send)

    def _letter(self, copy: Sent) -> DeadLetter[Any]:
        kept = from_message(copy, self.mailbox, self._keys, self._clock.now())
        letter = to_dead_letter(kept, lambda body: body)
        source = self._sources.get(letter.source_mailbox)
        message = source.message(letter.message_id) if source else None
        return letter if message is None else replace(letter, body=message.body)


class ReplySink:
    """Sends error replies through the messages that they answer."""

    def __init__(self, mailbox: str, sources: Iterable[MailboxSource]) -> None:
        self.mailbox = mailbox
        self._sources = sources

    async def send(self, messages: Sequence[Sent], *, delay: float = 0.0) -> None:
        """Reply to the message that each reply names."""
        for one in messages:
            message_id = one.header(IN_REPLY_TO)
            for source in self._sources:
                await source.answer(message_id or "")


async def in_thread(call: Callable[[], T], abandoned: Callable[[T], object] | None = None) -> T:
    """
    Return what a blocking call returns, without blocking the event loop.

    If cancelled, the call goes on; `abandoned` then gets its result. The thread does not
    keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def drop(result: T) -> None:
        if abandoned is not None:
            with suppress(Exception):  # the lease of what was received ends by itself
                abandoned(result)

    def deliver(result: T) -> None:
        if future.cancelled():
            Thread(target=drop, args=(result,), daemon=True).start()
        else:
            future.set_result(result)

    def fail(error: Exception) -> None:
        if not future.cancelled():
            future.set_exception(error)

    def run() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 -- raised to the caller
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(fail, error)
            return
        try:
            loop.call_soon_threadsafe(deliver, result)
        except RuntimeError:  # the loop is closed
            drop(result)

    Thread(target=run, name="mailbox", daemon=True).start()
    return await future


async def _available(
    mailbox: str, call: Callable[[], T], abandoned: Callable[[T], object] | None = None
) -> T:
    """Call a mailbox; whatever it raises means that it is unavailable, and is tried again."""
    try:
        return await in_thread(call, abandoned)
    except Exception as error:
        raise Unavailable(f"mailbox {mailbox}: {type(error).__name__}: {error}") from error


def _hand_back(messages: Sequence[Message[Any, Any]]) -> None:
    for message in messages:
        message.nack(visibility_timeout=0)


def _sent(message: Message[Any, Any]) -> Sent:
    """Return a message as the runtime knows it; its body is for the office to show."""
    request_id = getattr(message.body, "request_id", None)
    return Sent(
        id=message.id,
        body=_shown(message.body),
        sent_at=_utc(message.enqueued_at),
        content_type="application/json",
        reply_to=None if message.reply_to is None else message.reply_to.name,
        idempotency_key=None if request_id is None else str(request_id),
    )


def _kept(body: Any) -> Kept | None:
    """Return the letter that a body is, as the office keeps it; None for another body."""
    if not hasattr(body, "dead_lettered_at"):
        return None
    fields: dict[str, Any] = {
        name: getattr(body, name, None) for name in MailboxDeadLetter.__struct_fields__
    }
    fields["body"] = _shown(body.body)
    for name in ("dead_lettered_at", "first_received_at"):
        fields[name] = _utc(fields[name])
    return import_(MailboxDeadLetter(**fields))


def _shown(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    try:
        return msgspec.json.encode(body, enc_hook=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(body).encode("utf-8", "replace")


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _whole(seconds: float) -> int:
    """Return whole seconds, as the protocol wants them; a pause is not shortened."""
    return ceil(seconds)


def _is_one_of(error: BaseException, names: frozenset[str]) -> bool:
    """Return whether an error has one of these names; any package may define it."""
    return any(kind.__name__ in names for kind in type(error).__mro__)
