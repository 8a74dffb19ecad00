"""
Dead queues of SQS, and the way back to the queues they are for.

A message that SQS moved by itself keeps its id and its attributes. It is hidden for
some minutes while it is ours, and comes back by itself unless it is forgotten.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any, Final

import msgspec
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore import exceptions as theirs  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from deadletter.core.dialects import Found, lineage_headers, origin_of, unmarked
from deadletter.core.dialects.values import millis, number
from deadletter.core.errors import (
    BackendError,
    ConfigError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.core.message import Headers, Message
from deadletter.ports import Clock

from .addresses import SqsAddress, read_sqs

_BATCH: Final = 10
_HIDDEN: Final = 300  # seconds that what was taken is ours
_LONGEST_POLL: Final = 20
_MOST_ATTRIBUTES: Final = 10
_KNOWN: Final = (theirs.BotoCoreError, theirs.ClientError, OSError)
_types: Final = msgspec.json.Decoder(dict[str, str]).decode


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
    return Sqs(client, stack, address)


class Sqs:
    """The queues of one account."""

    def __init__(self, client: Any, stack: AsyncExitStack, address: SqsAddress) -> None:
        self._client = client
        self._stack = stack
        self._address = address
        self._urls: dict[str, str] = {}

    async def places(self) -> Sequence[str]:
        """The queues that other queues name as their dead queue."""
        found: set[str] = set()
        token: dict[str, str] = {}
        while True:
            answer = await self.call("list_queues", MaxResults=1000, **token)
            urls = [str(url) for url in answer.get("QueueUrls", ())]
            for url in urls:
                policy = await self.redrive(url)
                if arn := policy.get("deadLetterTargetArn", ""):
                    found.add(arn.rpartition(":")[2])
            if not answer.get("NextToken"):
                return sorted(found)
            token = {"NextToken": answer["NextToken"]}

    def drain(self, place: str) -> "SqsDrain":
        """The way into a queue."""
        return SqsDrain(self, place)

    def sink(self, mailbox: str) -> "SqsSink":
        """The way back to a queue."""
        return SqsSink(self, mailbox)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._stack.aclose()

    async def url(self, name: str) -> str:
        """Where a queue is."""
        if name not in self._urls:
            try:
                answer = await self.call("get_queue_url", QueueName=name)
            except NotFound as error:
                raise NotFound(
                    f"there is no queue {name!r} at {self._address.where}: "
                    "`dlq drain URL` without a name looks for dead queues"
                ) from error
            self._urls[name] = str(answer["QueueUrl"])
        return self._urls[name]

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
        answer = await self._service.call(
            "get_queue_attributes",
            QueueUrl=await self._service.url(self.place),
            AttributeNames=["ApproximateNumberOfMessages"],
        )
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

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
            raw=msgspec.json.encode(types),
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

    def __init__(self, service: Sqs, mailbox: str) -> None:
        self.mailbox = mailbox
        self._service = service

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send them, attributes of the same types, the body as it was."""
        url = await self._service.url(self.mailbox)
        entries = [_entry(one, self.mailbox) for one in messages]
        for start in range(0, len(entries), _BATCH):
            some = [
                {**entry, "Id": str(n)}
                for n, entry in enumerate(entries[start : start + _BATCH])
            ]
            answer = await self._service.call(
                "send_message_batch", QueueUrl=url, Entries=some
            )
            for failed in answer.get("Failed", ()):
                kind = Refused if failed.get("SenderFault") else Unavailable
                raise kind(f"{self.mailbox} does not take it: {failed.get('Message')}")


def _entry(message: Message, mailbox: str) -> dict[str, Any]:
    origin = origin_of(message)
    types: dict[str, str] = {}
    if origin is not None and origin.kind == "sqs":
        try:
            types = _types(origin.raw)
        except msgspec.MsgspecError:
            types = {}
    headers: Headers = unmarked(message).headers
    extra = lineage_headers(message.lineage)
    if len(headers) + len(extra) > _MOST_ATTRIBUTES:
        extra = ()  # then it finds back to its letter by its body alone
    entry: dict[str, Any] = {
        "MessageBody": message.body.decode("utf-8", "surrogatepass"),
        "MessageAttributes": {
            name: _attribute(value, types.get(name, "String"))
            for name, value in (*headers, *extra)
        },
    }
    if mailbox.endswith(".fifo"):
        dedup = sha256(message.dedup_id.encode("utf-8", "surrogatepass")).hexdigest()
        entry |= {"MessageGroupId": message.key or "-", "MessageDeduplicationId": dedup}
    return entry


def _attribute(value: bytes, data_type: str) -> dict[str, Any]:
    if data_type.startswith("Binary"):
        return {"DataType": data_type, "BinaryValue": value}
    return {"DataType": data_type, "StringValue": value.decode("utf-8", "replace")}


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
