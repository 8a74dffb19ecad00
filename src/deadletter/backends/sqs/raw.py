"""
Reading a queue as it is, without claims, suspects or copies: for draining.

What SQS moved to a dead queue by itself keeps its id, its attributes and its
receive count; nobody wrote down why.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from deadletter.core.message import Message

from .errors import Gone, NoQueue
from .link import BATCH, Link
from .post import Post
from .wire import decoded, name_in, read


class RawMessage(Struct, frozen=True, kw_only=True):
    """A message with everything that SQS says about it."""

    id: str  # SQS's own
    message: Message  # as its sender meant it: our fields read, the body whole
    receives: int
    attempts: int  # before this copy, as we counted them
    history: str  # what we wrote on it; empty on messages of others
    first_received_at: datetime
    source_arn: str | None  # the queue that SQS moved it from
    attributes: dict[str, str]
    message_attributes: dict[str, Any]
    handle: str


async def receive_raw(
    link: Link,
    post: Post,
    url: str,
    *,
    limit: int = BATCH,
    wait: int = 1,
    lease: int = 60,
) -> list[RawMessage]:
    """Up to ten messages, hidden from others for `lease` seconds."""
    answer = await link.wait(
        "receive_message",
        QueueUrl=url,
        MaxNumberOfMessages=min(limit, BATCH),
        WaitTimeSeconds=wait,
        VisibilityTimeout=lease,
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
    )
    queue = name_in(url)
    return [await _raw(raw, post, queue) for raw in answer.get("Messages", ())]


async def delete_raw(
    link: Link, url: str, messages: Sequence[RawMessage]
) -> list[bool]:
    """Forget messages; says for each if it was still ours."""
    entries = [{"ReceiptHandle": message.handle} for message in messages]
    failures = await link.batch("delete_message_batch", url, entries)
    for failure in failures:
        if failure is not None and not isinstance(failure, Gone | NoQueue):
            raise failure
    return [failure is None for failure in failures]


async def _raw(raw: dict[str, Any], post: Post, queue: str) -> RawMessage:
    received = read(raw, queue, post.seal.keys)
    return RawMessage(
        id=received.id,
        message=await post.whole(received),
        receives=received.count,
        attempts=received.slip.attempts,
        history=decoded(received.slip.history),
        first_received_at=received.first_at,
        source_arn=received.source_arn,
        attributes=raw.get("Attributes", {}),
        message_attributes=raw.get("MessageAttributes", {}),
        handle=received.handle,
    )
