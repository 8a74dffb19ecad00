"""
Dead queues of SQS, and the way back to the queues they are for.

A message that SQS moved by itself keeps its id and its attributes. It is hidden for
some minutes while it is ours, and comes back by itself unless it is forgotten.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Any, Final

import msgspec
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore import exceptions as theirs  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from msgspec import Struct

from deadletter.core.dialects import (
    PACKED,
    Found,
    origin_of,
    packed_lineage,
    unmarked,
)
from deadletter.core.dialects.values import millis, number
from deadletter.core.errors import (
    BackendError,
    ConfigError,
    DeadLetterError,
    NotFound,
    PartlySent,
    Refused,
    Unavailable,
)
from deadletter.core.message import Message
from deadletter.ports import Arrival, Clock, CopyTrace, Hidden, SentCopy

from .addresses import SqsAddress, near_names, read_sqs

_BATCH: Final = 10
_BATCH_BYTES: Final = 256 * 1024  # that one call may send, on the strictest service
_HIDDEN: Final = 300  # seconds that what was taken is ours
_LONGEST_POLL: Final = 20
_MOST_ATTRIBUTES: Final = 10
_MOST_LISTED: Final = 10_000  # queues that are looked at for a name
_KNOWN: Final = (theirs.BotoCoreError, theirs.ClientError, OSError)
_TRACE: Final = "AWSTraceHeader"
_FIFO: Final = ".fifo"
_DEDUPLICATED: Final = 240.0  # seconds that a FIFO queue surely knows a copy


class Slip(Struct, frozen=True, array_like=True):
    """What of a message is neither its body nor the value of an attribute."""

    types: dict[str, str] = {}  # of attributes
    trace: str = ""  # AWSTraceHeader, the one system attribute that producers set


_pack: Final = msgspec.json.Encoder().encode
_unpack: Final = msgspec.json.Decoder(Slip | dict[str, str]).decode


async def open_sqs(url: str, *, clock: Clock) -> "Sqs":
    """The service that a URL names."""
    address = read_sqs(url)
    stack = AsyncExitStack()
    settings = Config(
        connect_timeout=5, read_timeout=_LONGEST_POLL + 10, retries={"mode": "standard"}
    )
    keys: dict[str, str] = {}
    if address.keys is not None:
        keys["aws_access_key_id"], keys["aws_secret_access_key"] = address.keys
    try:
        client = await stack.enter_async_context(
            get_session().create_client(
                "sqs",
                region_name=address.region,
                endpoint_url=address.endpoint,
                config=settings,
                **keys,
            )
        )
    except theirs.NoRegionError as error:
        raise ConfigError(
            "no AWS region is set: write it into the URL, as in sqs://eu-west-1"
        ) from error
    return Sqs(client, stack, address, clock)


class Sqs:
    """The queues of one account."""

    def __init__(
        self, client: Any, stack: AsyncExitStack, address: SqsAddress, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._stack = stack
        self._address = address
        self._urls: dict[str, str] = {}

    async def places(self) -> Sequence[str]:
        """The queues that other queues name as their dead queue."""
        found: set[str] = set()
        async for url in self._queues():
            policy = await self.redrive(url)
            if arn := policy.get("deadLetterTargetArn", ""):
                found.add(arn.rpartition(":")[2])
        return sorted(found)

    def drain(self, place: str) -> "SqsDrain":
        """The way into a queue."""
        return SqsDrain(self, place)

    def sink(self, mailbox: str) -> "SqsSink":
        """The way back to a queue."""
        return SqsSink(self, mailbox, needs_mark=not self._address.unmarked)

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """
        Say which copies can be sent again without a double; nothing can be looked up.

        A FIFO queue drops doubles for five minutes.
        """
        now = self._clock.now()
        traces: list[CopyTrace] = []
        for copy in copies:
            is_fifo = copy.mailbox.endswith(_FIFO)
            age = (now - copy.sent_at).total_seconds()
            if is_fifo and age < _DEDUPLICATED:
                traces.append(CopyTrace(Arrival.MISSING))
                continue
            why = "a FIFO queue of SQS drops doubles for only five minutes"
            if not is_fifo:
                why = "a standard queue of SQS shows nobody what was sent to it"
            traces.append(CopyTrace(Arrival.UNKNOWABLE, why))
        for mailbox in {copy.mailbox for copy in copies}:
            with suppress(NotFound):
                await self.url(mailbox)  # nothing is said while nothing can be sent
        return traces

    async def close(self) -> None:
        """Let go of the connections."""
        await self._stack.aclose()

    async def url(self, name: str) -> str:
        """Where a queue is."""
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
        """The queues that there are, to find the one that was meant."""
        names: list[str] = []
        with suppress(DeadLetterError):  # whoever may not list them knows the names
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
        """A queue's redrive policy; empty when it has none."""
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
        """Call the service; its errors in our words."""
        try:
            return await getattr(self._client, verb)(**arguments)
        except _KNOWN as error:
            raise _translated(error, self._address.where) from error


class SqsDrain:
    """One queue, read as it is."""

    def __init__(self, service: Sqs, place: str) -> None:
        self.place = place
        self._service = service
        self._most: dict[str, str] = {}  # how often a source lets messages be received

    async def depth(self) -> int:
        """About how many messages it has."""
        return await self._count("ApproximateNumberOfMessages")

    async def hidden(self) -> Hidden:
        """Count what somebody has received and not deleted, as a drain that died."""
        count = await self._count("ApproximateNumberOfMessagesNotVisible")
        return Hidden(count, float(_HIDDEN))

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Up to `limit` messages, hidden from everybody else for some minutes."""
        found: list[Found] = []
        while len(found) < limit:
            answer = await self._service.call(
                "receive_message",
                QueueUrl=await self._service.url(self.place),
                MaxNumberOfMessages=min(limit - len(found), _BATCH),
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
        """Delete them; one whose time was over is there again, and comes again."""
        await self._batches("delete_message_batch", found)

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Show them to everybody again."""
        await self._batches(
            "change_message_visibility_batch", found, VisibilityTimeout=0
        )

    async def close(self) -> None:
        """What is hidden is seen again after some minutes."""

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
        for start in range(0, len(found), _BATCH):
            entries = [
                {"Id": str(n), "ReceiptHandle": one.receipt, **more}
                for n, one in enumerate(found[start : start + _BATCH])
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
        return Found(
            kind="sqs",
            place=self.place,
            id=raw["MessageId"],
            body=raw["Body"].encode("utf-8", "surrogatepass"),
            headers=tuple((name, _value(one)) for name, one in attributes.items()),
            about=about,
            at=millis(number(about.get("SentTimestamp", ""))),
            key=about.get("MessageGroupId"),
            raw=_pack(Slip(types, about.get(_TRACE, ""))),
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
    """The way back to one queue."""

    def __init__(self, service: Sqs, mailbox: str, *, needs_mark: bool = True) -> None:
        self.mailbox = mailbox
        self._service = service
        self._needs_mark = needs_mark

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send them in order, attributes of the same types, the body as it was."""
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
        Send up to ten, and note what became of each.

        SQS refuses all of them for one that it cannot read: then each goes alone.
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


def _batches_of(
    entries: dict[int, dict[str, Any]],
) -> Iterator[dict[int, dict[str, Any]]]:
    """As many entries at a time as one call takes, by number and by size."""
    batch: dict[int, dict[str, Any]] = {}
    size = 0
    for place, entry in entries.items():
        more = _size(entry)
        if batch and (len(batch) == _BATCH or size + more > _BATCH_BYTES):
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
    slip = _slip(origin.raw) if origin is not None and origin.kind == "sqs" else Slip()
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
    entry: dict[str, Any] = {
        "MessageBody": _text(message.body, f"the body of message {message.id}"),
        "MessageAttributes": {
            name: _attribute(name, value, slip.types.get(name, "String"))
            for name, value in headers.items()
        },
    }
    if slip.trace:
        trace = {"DataType": "String", "StringValue": slip.trace}
        entry["MessageSystemAttributes"] = {_TRACE: trace}
    if is_fifo:
        entry |= {"MessageGroupId": message.key or "-", "MessageDeduplicationId": dedup}
    elif message.key and origin is not None and not origin.place.endswith(_FIFO):
        entry["MessageGroupId"] = message.key  # of a fair queue
    return entry


def _slip(raw: bytes) -> Slip:
    try:
        read = _unpack(raw)
    except msgspec.MsgspecError:
        return Slip()
    return Slip(read) if isinstance(read, dict) else read


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


def _translated(error: Exception, where: str) -> BackendError | ConfigError | NotFound:
    if not isinstance(error, theirs.ClientError):
        if isinstance(error, theirs.NoCredentialsError):
            return ConfigError(
                "there are no AWS credentials: set AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run where a role gives them"
            )
        return Unavailable(f"no answer from {where}: is it running? ({error})")
    told = error.response.get("Error", {})
    code = str(told.get("Code", "")).rpartition(".")[2]
    text = str(told.get("Message", "")) or code
    if code in {"NonExistentQueue", "QueueDoesNotExist"}:
        return NotFound(text)
    if code.startswith(("Throttl", "RequestThrottled")):
        return Unavailable(f"SQS asks us to slow down: {text}")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    kind = Refused if 400 <= status < 500 else Unavailable
    return kind(f"SQS says no: {code}: {text}")
