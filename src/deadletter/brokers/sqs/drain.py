"""
Drain of dead queues on SQS, and the way back to their source queues.

A message that SQS moved by itself keeps its id and its attributes. It is hidden for some
minutes while we have it, and becomes visible again unless it is deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from msgspec import Struct

from deadletter.core.errors import (
    BackendError,
    DeadLetterError,
    NotFound,
    PartlySent,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.core.origin import millis, number
from deadletter.intake.dialects import PACKED, Found, origin_of, packed_lineage, unmarked
from deadletter.kit import near_names
from deadletter.ports import Arrival, Clock, CopyTrace, Hidden, SentCopy

from .connection import (
    BATCH,
    ERRORS,
    Address,
    NoQueue,
    Options,
    address_of,
    check,
    client,
    url_form,
)
from .message_format import own_message, wire_text

_BATCH_BYTES: Final = 256 * 1024  # that one call may send, on the strictest service
_HIDDEN: Final = 300  # seconds that what was taken is ours
_LONGEST_POLL: Final = 20
_TRIES: Final = 3  # of every call
_MOST_ATTRIBUTES: Final = 10
_MOST_LISTED: Final = 10_000  # queues that are looked at for a name
_TRACE: Final = "AWSTraceHeader"
_FIFO: Final = ".fifo"
_DEDUPLICATED: Final = 240.0  # seconds that a FIFO queue surely knows a copy


class Extras(Struct, frozen=True, array_like=True):
    """Parts of a message beside its body and the values of its attributes."""

    types: dict[str, str] = {}  # of attributes
    trace: str = ""  # AWSTraceHeader, the one system attribute that producers set
    form: str = "text"  # of the body of a message that we sent: text or base64


_pack: Final = msgspec.json.Encoder().encode
_unpack: Final = msgspec.json.Decoder(Extras | dict[str, str]).decode


class DrainOptions(Options, frozen=True, kw_only=True):
    """Parameters of the URLs."""

    unmarked: Literal["yes", "no"] = "no"  # send copies without room for their lineage


URL: Final = url_form(DrainOptions)


async def open_sqs(url: str, *, clock: Clock) -> "SqsAccount":
    """Connect to the service that a URL names."""
    said = URL.read(url)
    address = address_of(said)
    async with AsyncExitStack() as stack:
        with ERRORS.translated():
            making = client(get_session(), address, patience=_LONGEST_POLL + 10, attempts=_TRIES)
            calling = await stack.enter_async_context(making)
        await check(calling, address)
        is_unmarked = said.options.unmarked == "yes"
        return SqsAccount(calling, stack.pop_all(), address, clock, needs_mark=not is_unmarked)


class SqsAccount:
    """The queues of one account."""

    def __init__(
        self,
        client: Any,
        stack: AsyncExitStack,
        address: Address,
        clock: Clock,
        *,
        needs_mark: bool = True,
    ) -> None:
        self._client = client
        self._needs_mark = needs_mark
        self._clock = clock
        self._stack = stack
        self._address = address
        self._urls: dict[str, str] = {}

    async def places(self) -> Sequence[str]:
        """Return the queues that other queues use as their dead queue."""
        found: set[str] = set()
        async for url in self._queues():
            policy = await self.redrive(url)
            if arn := policy.get("deadLetterTargetArn", ""):
                found.add(arn.rpartition(":")[2])
        return sorted(found)

    def drain(self, place: str) -> "SqsDrain":
        """Return the drain of a queue."""
        return SqsDrain(self, place)

    def sink(self, mailbox: str) -> "SqsSink":
        """Return the sink of a queue."""
        return SqsSink(self, mailbox, needs_mark=self._needs_mark)

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """
        Report which copies can be sent again without a duplicate.

        SQS cannot be searched, but a FIFO queue drops duplicates for five minutes.
        """
        now = self._clock.now()
        traces: list[CopyTrace] = []
        for copy in copies:
            is_fifo = copy.mailbox.endswith(_FIFO)
            age = (now - copy.sent_at).total_seconds()
            if is_fifo and age < _DEDUPLICATED:
                traces.append(CopyTrace(Arrival.MISSING))
                continue
            why = "a FIFO queue of SQS drops duplicates for only five minutes"
            if not is_fifo:
                why = "a standard queue of SQS cannot be searched for a copy"
            traces.append(CopyTrace(Arrival.UNKNOWABLE, why))
        for mailbox in {copy.mailbox for copy in copies}:
            with suppress(NotFound):
                await self.url(mailbox)  # raises while SQS is unavailable
        return traces

    async def close(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def url(self, name: str) -> str:
        """Return the URL of a queue; raise NotFound with near names."""
        if name not in self._urls:
            try:
                answer = await self.call("get_queue_url", QueueName=name)
            except NotFound as error:
                near = near_names(name, await self._names())
                raise NotFound(
                    f"there is no queue {name!r} at {self._address.where}.{near}"
                    " `dlq drain URL` without a name looks for dead queues"
                ) from error
            self._urls[name] = str(answer["QueueUrl"])
        return self._urls[name]

    async def _names(self) -> list[str]:
        """Return the names of existing queues, for near names in an error."""
        names: list[str] = []
        with suppress(DeadLetterError):  # not everybody may list queues
            async for url in self._queues():
                names.append(url.rpartition("/")[2])
                if len(names) >= _MOST_LISTED:
                    break
        return names

    async def _queues(self) -> AsyncIterator[str]:
        token: dict[str, str] = {}
        while True:
            answer = await self.call("list_queues", MaxResults=1000, **token)
            for url in answer.get("QueueUrls", ()):
                yield str(url)
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    async def redrive(self, url: str) -> dict[str, str]:
        """Return a queue's redrive policy, which may be empty."""
        answer = await self.call(
            "get_queue_attributes", QueueUrl=url, AttributeNames=["RedrivePolicy"]
        )
        told = answer.get("Attributes", {}).get("RedrivePolicy", "")
        try:
            policy = msgspec.json.decode(told or "{}")
        except msgspec.DecodeError:
            return {}
        return {str(name): str(value) for name, value in policy.items()}

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Call the service; raise our errors, NotFound for a missing queue."""
        try:
            return await getattr(self._client, verb)(**arguments)
        except ERRORS.known as error:
            ours = ERRORS.translate(error)
            if isinstance(ours, NoQueue):
                ours = NotFound(str(ours))
            raise ours from error


class SqsDrain:
    """The drain of one queue."""

    def __init__(self, service: SqsAccount, place: str) -> None:
        self.place = place
        self._service = service
        self._most: dict[str, str] = {}  # how often a source lets messages be received

    async def depth(self) -> int:
        """Return about how many messages the queue has."""
        return await self._count("ApproximateNumberOfMessages")

    async def hidden(self) -> Hidden:
        """Return how many messages are received and not deleted, as by a drain that died."""
        count = await self._count("ApproximateNumberOfMessagesNotVisible")
        return Hidden(count, float(_HIDDEN))

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Receive up to `limit` messages; others do not see them for some minutes."""
        found: list[Found] = []
        while len(found) < limit:
            answer = await self._service.call(
                "receive_message",
                QueueUrl=await self._service.url(self.place),
                MaxNumberOfMessages=min(limit - len(found), BATCH),
                # Without a wait SQS asks only some of its servers.
                WaitTimeSeconds=1 if found else int(min(max(wait, 1), _LONGEST_POLL)),
                VisibilityTimeout=_HIDDEN,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            raws = answer.get("Messages", ())
            found += [await self._found(raw) for raw in raws]
            if not raws:
                break
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Delete messages; one whose time was over is received again."""
        await self._batches("delete_message_batch", found)

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Make messages visible again."""
        await self._batches("change_message_visibility_batch", found, VisibilityTimeout=0)

    async def close(self) -> None:
        """Do nothing: hidden messages become visible again after some minutes."""

    async def _count(self, what: str) -> int:
        answer = await self._service.call(
            "get_queue_attributes",
            QueueUrl=await self._service.url(self.place),
            AttributeNames=[what],
        )
        return int(answer["Attributes"][what])

    async def _batches(self, verb: str, found: Sequence[Found], **more: object) -> None:
        url = await self._service.url(self.place)
        calls = []
        for start in range(0, len(found), BATCH):
            entries = [
                {"Id": str(n), "ReceiptHandle": one.receipt, **more}
                for n, one in enumerate(found[start : start + BATCH])
            ]
            calls.append(self._service.call(verb, QueueUrl=url, Entries=entries))
        await asyncio.gather(*calls)

    async def _found(self, raw: dict[str, Any]) -> Found:
        about = {str(k): str(v) for k, v in raw.get("Attributes", {}).items()}
        attributes = raw.get("MessageAttributes", {})
        types = {name: one["DataType"] for name, one in attributes.items()}
        if arn := about.get("DeadLetterQueueSourceArn"):
            # SQS counts our own receiving too: what it let pass is what counts.
            about["ApproximateReceiveCount"] = await self._most_receives(arn)
        # A worker of ours may have kept the letter already, under the id of its own.
        body = raw["Body"].encode("utf-8", "surrogatepass")
        id_, body, form = own_message(raw) or (raw["MessageId"], body, "text")
        return Found(
            kind="sqs",
            place=self.place,
            id=id_,
            body=body,
            headers=tuple((name, _value(one)) for name, one in attributes.items()),
            about=about,
            at=millis(number(about.get("SentTimestamp", ""))),
            key=about.get("MessageGroupId"),
            raw=_pack(Extras(types, about.get(_TRACE, ""), form)),
            receipt=raw["ReceiptHandle"],
        )

    async def _most_receives(self, arn: str) -> str:
        name = arn.rpartition(":")[2]
        if name not in self._most:
            try:
                policy = await self._service.redrive(await self._service.url(name))
            except NotFound:  # the queue is gone; its dead are still here
                policy = {}
            self._most[name] = policy.get("maxReceiveCount", "")
        return self._most[name]


class SqsSink:
    """Sink of one queue."""

    def __init__(self, service: SqsAccount, mailbox: str, *, needs_mark: bool = True) -> None:
        self.mailbox = mailbox
        self._service = service
        self._needs_mark = needs_mark

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send messages in order, with their bodies and the types of their attributes."""
        url = await self._service.url(self.mailbox)
        entries: dict[int, dict[str, Any]] = {}
        refused: dict[int, DeadLetterError] = {}
        for place, message in enumerate(messages):
            try:
                entry = _entry(message, self.mailbox, needs_mark=self._needs_mark)
                entries[place] = {**entry, "Id": str(place)}
            except Refused as error:
                refused[place] = error
        sent: set[int] = set()
        try:
            for batch in _batches_of(entries):
                await self._send(url, batch, sent, refused)
        except BackendError as error:
            raise PartlySent(sent=sent, refused=refused, cause=error) from error
        if refused:
            raise PartlySent(sent=sent, refused=refused)

    async def _send(
        self,
        url: str,
        batch: dict[int, dict[str, Any]],
        sent: set[int],
        refused: dict[int, DeadLetterError],
    ) -> None:
        """
        Send up to ten messages, and record the outcome of each.

        SQS refuses a whole batch for one invalid message: then each is sent alone.
        """
        try:
            answer = await self._service.call(
                "send_message_batch", QueueUrl=url, Entries=list(batch.values())
            )
        except Refused as error:
            if len(batch) == 1:
                refused |= dict.fromkeys(batch, error)
                return
            for place, entry in batch.items():
                await self._send(url, {place: entry}, sent, refused)
            return
        sent |= {int(one["Id"]) for one in answer.get("Successful", ())}
        for failed in answer.get("Failed", ()):
            text = f"{self.mailbox} refuses the message: {failed.get('Message')}"
            if not failed.get("SenderFault"):
                raise Unavailable(text)
            refused[int(failed["Id"])] = Refused(text)


def _batches_of(entries: dict[int, dict[str, Any]]) -> Iterator[dict[int, dict[str, Any]]]:
    """Yield batches of as many entries as one call accepts, by number and size."""
    batch: dict[int, dict[str, Any]] = {}
    size = 0
    for place, entry in entries.items():
        more = _size(entry)
        if batch and (len(batch) == BATCH or size + more > _BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[place] = entry
        size += more
    if batch:
        yield batch


def _size(entry: dict[str, Any]) -> int:
    size = len(entry["MessageBody"].encode("utf-8", "replace"))
    for name, one in entry["MessageAttributes"].items():
        value = one.get("BinaryValue") or one.get("StringValue", "").encode()
        size += len(name.encode()) + len(one["DataType"].encode()) + len(value)
    return size


def _entry(message: Message, mailbox: str, *, needs_mark: bool) -> dict[str, Any]:
    origin = origin_of(message)
    extras = _extras(origin.raw) if origin is not None and origin.kind == "sqs" else Extras()
    headers = dict(unmarked(message).headers)
    lineage = message.lineage
    is_fifo = mailbox.endswith(_FIFO)
    dedup = message.dedup_id
    if lineage is not None:
        dedup = f"{lineage.letter_id}~{lineage.generation}"
    dedup = sha256(dedup.encode("utf-8", "surrogatepass")).hexdigest()
    if lineage is not None:
        if len(headers) < _MOST_ATTRIBUTES:
            headers[PACKED] = packed_lineage(lineage).encode("utf-8", "replace")
        elif is_fifo:
            dedup = packed_lineage(lineage, with_mailbox=False)
        elif needs_mark:
            raise Refused(
                f"message {message.id} has {len(headers)} attributes, and its copy"
                " needs one more to return to its letter: SQS allows"
                f" {_MOST_ATTRIBUTES}. Remove one with `dlq edit`, or add ?unmarked=yes"
                " to the URL: then a copy that dies again becomes a new letter"
            )
    if extras.form == "base64":
        text = wire_text(message.body)
    else:
        text = _text(message.body, f"the body of message {message.id}")
    entry: dict[str, Any] = {
        "MessageBody": text,
        "MessageAttributes": {
            name: _attribute(name, value, extras.types.get(name, "String"))
            for name, value in headers.items()
        },
    }
    if extras.trace:
        trace = {"DataType": "String", "StringValue": extras.trace}
        entry["MessageSystemAttributes"] = {_TRACE: trace}
    if is_fifo:
        entry |= {"MessageGroupId": message.key or "-", "MessageDeduplicationId": dedup}
    elif message.key and origin is not None and not origin.place.endswith(_FIFO):
        entry["MessageGroupId"] = message.key  # of a fair queue
    return entry


def _extras(raw: bytes) -> Extras:
    try:
        read = _unpack(raw)
    except msgspec.MsgspecError:
        return Extras()
    return Extras(read) if isinstance(read, dict) else read


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Refused(
            f"{what} must be UTF-8, as SQS carries only text: it has other bytes"
        ) from error


def _attribute(name: str, value: bytes, data_type: str) -> dict[str, Any]:
    if data_type.startswith("Binary"):
        return {"DataType": data_type, "BinaryValue": value}
    text = _text(value, f"the attribute {name!a} of type {data_type}")
    return {"DataType": data_type, "StringValue": text}


def _value(attribute: dict[str, Any]) -> bytes:
    if "BinaryValue" in attribute:
        return bytes(attribute["BinaryValue"])
    return str(attribute.get("StringValue", "")).encode("utf-8", "surrogatepass")
