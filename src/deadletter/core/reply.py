"""Answers to whoever asked for one."""

from datetime import datetime

import msgspec

from .decision import Bury, Decision, Fail
from .failure import Failure
from .message import Delivery, Message

IN_REPLY_TO = "dlq-in-reply-to"
IS_ERROR = "dlq-error"


def reply(
    delivery: Delivery, body: bytes, content_type: str | None, *, id: str, now: datetime
) -> Message:
    """What a handler returned, addressed to whoever asked."""
    return Message(
        id=id,
        body=body,
        sent_at=now,
        headers=((IN_REPLY_TO, delivery.message.id.encode()),),
        content_type=content_type,
        key=delivery.message.key,
        traceparent=delivery.message.traceparent,
    )


def bad_news(delivery: Delivery, decision: Decision, failure: Failure) -> object:
    """How it ended, for whoever asked and has no words of its own for it."""
    what = "ended" if not isinstance(decision, Bury | Fail) else "failed"
    if isinstance(decision, Bury):
        what = "dead-lettered"
    return {
        "error": f"{what} after {delivery.charged} attempts: {failure.text}",
        "error_type": failure.error_type,
        "code": failure.code,
        "attempts": delivery.charged,
        "message_id": delivery.message.id,
    }


def error_reply(
    delivery: Delivery, failure: Failure, news: bytes, *, id: str, now: datetime
) -> Message:
    """
    The bad news, on a terminal outcome only.

    Sent after the dead letter is durable, so that it is never wrong.
    """
    message = reply(delivery, news, "application/json", id=id, now=now)
    return msgspec.structs.replace(
        message, headers=(*message.headers, (IS_ERROR, failure.code.encode()))
    )
